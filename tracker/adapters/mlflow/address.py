"""The address of an MLflow store and its reachability, without MLflow's own library, which takes seconds to import."""

import socket
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from packaging.version import InvalidVersion, Version

from eval_jobs.errors import ConfigError, TrackingUnreachable
from eval_jobs.host.bounded.client import BoundedClient

CONNECT_TIMEOUT_S = 3.0
VERSION_TIMEOUT_S = 10.0
SQLITE_PREFIX = "sqlite:///"
OLDEST_SERVER = Version("3.1")
"""The first with all requests of models (LoggedModel) that the tracker makes."""
DEFAULT_PORTS = {"http": 80, "https": 443, "postgresql": 5432}


def check_reachable(uri: str) -> None:
    """Check within seconds that the store can be used.

    Raises:
        TrackingUnreachable: it cannot be used, or its server is older than `OLDEST_SERVER`.
        ConfigError: the address is invalid.
    """
    path = sqlite_path(uri)
    if path is not None:
        _check_sqlite(path, uri)
        return
    host, port = _host_and_port(uri)
    if host and port:
        try:
            socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S).close()
        except OSError as error:
            raise unreachable(public(uri), f"cannot connect to {host}:{port} ({error})") from error
    if uri.startswith("http"):
        _check_version(uri)


def sqlite_path(uri: str) -> Path | None:
    """Return the file of a SQLite store, None for any other."""
    if uri.startswith(SQLITE_PREFIX):
        return Path(uri.removeprefix(SQLITE_PREFIX))
    return None


def public(uri: str) -> str:
    """Return the address without a password in it, for messages."""
    parts = urlsplit(uri)
    if not parts.password:
        return uri
    return parts._replace(netloc=parts.netloc.replace(f":{parts.password}@", ":***@")).geturl()


def unreachable(uri: str, reason: str) -> TrackingUnreachable:
    """Return the error for a store that cannot be used now."""
    if uri.startswith("http"):
        hint = "start the MLflow server or fix tracking.uri; pending results are sent once it is reachable"
    else:
        hint = "check that the store exists, is writable and has space; pending results are sent later"
    return TrackingUnreachable(f"cannot use the MLflow store {uri}: {first_line(reason)}", hint=hint)


def first_line(text: str) -> str:
    """Return the first line of an error message, without a traceback."""
    lines = text[:1000].strip().splitlines()
    if lines:
        return lines[0][:500]
    return "no reason given"


def _host_and_port(uri: str) -> tuple[str | None, int | None]:
    try:
        parts = urlsplit(uri)
        return parts.hostname, parts.port or DEFAULT_PORTS.get(parts.scheme.partition("+")[0])
    except ValueError as error:
        raise ConfigError(
            f"invalid tracking.uri {public(uri)!r}: {error}", hint="use http://host:port with a port number"
        ) from error


def _check_version(uri: str) -> None:
    """Refuse a server that is known to be too old; some stores behind http have no such page."""
    try:
        with BoundedClient(VERSION_TIMEOUT_S, {}, trust_env=False) as client:
            response = client.get(f"{uri.rstrip('/')}/version")
        version = Version(response.text.strip()[:40])
    except InvalidVersion:
        return
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise unreachable(public(uri), str(error)) from error
    if response.is_success and version < OLDEST_SERVER:
        raise TrackingUnreachable(
            f"the MLflow server {public(uri)} has version {version}; {OLDEST_SERVER} or newer is required",
            hint="update the MLflow server, or set tracking.uri to another; pending results are sent later",
        )


def _check_sqlite(path: Path, uri: str) -> None:
    """Check that the file can be written: MLflow itself would retry for two minutes."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path, timeout=CONNECT_TIMEOUT_S, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
    except (OSError, sqlite3.Error) as error:
        raise unreachable(uri, str(error)) from error
