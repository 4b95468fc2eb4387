"""Opens a connection to an MLflow store: a server by http(s), or a SQL database without a server.

    with mapped_errors(uri):
        client = connect("sqlite:////project/.tracker/mlflow.db")

MLflow's own patience is minutes; here a store that does not answer is given up after seconds.
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
    """Return a client whose store answered just now; a SQLite store is created where there is none.

    Raises:
        TrackingUnreachable: nothing answers, or the folder cannot be created or written.
        MlflowException, SQLAlchemyError: as the client; see `errors_sql.mapped_mlflow_errors`.
    """
    # It logs the tracebacks of errors that it also raises, and every table that it creates.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # its models use a deprecated option of SQLAlchemy
        path = sqlite_path(uri)
        if path is not None and not path.exists():
            _create_sqlite(path)
        check_reachable(uri)
        return MlflowClient(tracking_uri=uri)


def check_reachable(uri: str) -> None:
    """Find out within seconds whether the store can be used.

    Raises:
        TrackingUnreachable: it cannot.
        ConfigError: the address is none.
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
    """Give a SQLite store its tables under another name, then its own.

    Creating them takes MLflow seconds, and a database in which it was killed half-way it refuses for ever.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft, whole = path.with_name(f".{path.name}.draft"), path.with_name(f".{path.name}.whole")
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # closing it, or a kill, releases the lock
        for name in (draft, draft.with_name(f"{draft.name}-journal"), whole):
            name.unlink(missing_ok=True)  # of a process that was killed
        if not path.exists():
            MlflowClient(tracking_uri=f"{SQLITE_PREFIX}{draft}")
            shutil.copyfile(draft, whole)  # MLflow keeps its connection to the draft
            draft.unlink()
            whole.replace(path)
    finally:
        os.close(folder)


def _check_sqlite(uri: str) -> None:
    """Open the file for writing: MLflow itself would try for two minutes."""
    path = Path(uri.removeprefix(SQLITE_PREFIX))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path, timeout=CONNECT_TIMEOUT_S, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
    except (OSError, sqlite3.Error) as error:
        raise unreachable(uri, str(error)) from error
