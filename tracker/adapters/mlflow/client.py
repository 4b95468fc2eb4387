"""Opens a connection to an MLflow store: a server by http(s), or a SQL database without a server.

    with mapped_mlflow_errors(uri):
        client = connect("sqlite:////project/.tracker/mlflow.db")

MLflow's own timeouts are minutes; here a store that does not respond fails after seconds.
"""

import fcntl
import logging
import os
import shutil
import socket
import sqlite3
import warnings
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

from mlflow import MlflowClient

from eval_jobs.errors import ConfigError
from tracker.adapters.mlflow.errors_sql import unreachable

CONNECT_TIMEOUT_S = 3.0
SQLITE_PREFIX = "sqlite:///"
DEFAULT_PORTS = {"http": 80, "https": 443, "postgresql": 5432}


def connect(uri: str) -> MlflowClient:
    """Return a client after checking that its store responds; a missing SQLite store is created.

    Raises:
        TrackingUnreachable: the store does not respond, or the folder cannot be created or written.
        MlflowException, SQLAlchemyError: from the client; see `errors_sql.mapped_mlflow_errors`.
    """
    # MLflow logs the tracebacks of errors that it also raises, and every table that it creates.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # MLflow's models use a deprecated option of SQLAlchemy
        path = sqlite_path(uri)
        if path is not None and not path.exists():
            _create_sqlite(path)
        check_reachable(uri)
        return MlflowClient(tracking_uri=uri)


def check_reachable(uri: str) -> None:
    """Check within seconds that the store can be used.

    Raises:
        TrackingUnreachable: it cannot be used.
        ConfigError: the address is invalid.
    """
    if uri.startswith(SQLITE_PREFIX):
        _check_sqlite(uri)
        return
    host, port = _host_and_port(uri)
    if host and port:
        try:
            socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S).close()
        except OSError as error:
            raise unreachable(public(uri), f"cannot connect to {host}:{port} ({error})") from error


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


# --- private


def _host_and_port(uri: str) -> tuple[str | None, int | None]:
    try:
        parts = urlsplit(uri)
        return parts.hostname, parts.port or DEFAULT_PORTS.get(parts.scheme.partition("+")[0])
    except ValueError as error:
        raise ConfigError(
            f"invalid tracking.uri {public(uri)!r}: {error}", hint="use http://host:port with a port number"
        ) from error


def _create_sqlite(path: Path) -> None:
    """Create a SQLite store with its tables under a temporary name, then rename it.

    Creating the tables takes MLflow seconds, and it never accepts a database whose creation was interrupted by a kill.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft, whole = path.with_name(f".{path.name}.draft"), path.with_name(f".{path.name}.whole")
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # closing it, or a kill, releases the lock
        for name in (draft, draft.with_name(f"{draft.name}-journal"), whole):
            name.unlink(missing_ok=True)  # left by a killed process
        if not path.exists():
            MlflowClient(tracking_uri=f"{SQLITE_PREFIX}{draft}")
            shutil.copyfile(draft, whole)  # MLflow keeps its connection to the draft
            draft.unlink()
            whole.replace(path)
    finally:
        os.close(folder)


def _check_sqlite(uri: str) -> None:
    """Check that the file can be written: MLflow itself would retry for two minutes."""
    path = Path(uri.removeprefix(SQLITE_PREFIX))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path, timeout=CONNECT_TIMEOUT_S, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
    except (OSError, sqlite3.Error) as error:
        raise unreachable(uri, str(error)) from error
