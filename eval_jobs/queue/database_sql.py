"""Opens the one SQL database of a tracker: SQLite in a file by default, PostgreSQL by URL."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar
from urllib.parse import quote

from sqlalchemy import URL, ColumnElement, Connection, Engine, Table, create_engine, event, func, make_url, or_
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine.interfaces import DBAPIConnection, Dialect
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry, NullPool

from eval_jobs.errors import ConfigError, DiskFull, StoreError, StoreUnavailable
from eval_jobs.queue.address import checked_database_url
from eval_jobs.records.run_scope import prefix_of

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

P = ParamSpec("P")
T = TypeVar("T")
Database = Engine
"""An open database, for code that only passes it on."""

BUSY_TIMEOUT_S = 30.0
BUSY_POLL_S = (0.001, 0.004)
"""Between two attempts to write, drawn at random. SQLite's own waits grow to 0.1 s, while others take turns."""
POSTGRES_OPTIONS: dict[str, str | int] = {
    "application_name": "checkpoint-tracker",
    "connect_timeout": 10,
    # A server that disappears without closing the connection is detected within 20 s.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": 20_000,
}
"""Options of libpq, in seconds, the last in milliseconds. Options in the URL override them."""
IDS_AT_ONCE = 500
"""Values in one statement; SQLite limits their number."""
SILENCE_S = 30.0
"""Maximum time without data from PostgreSQL after a request. Migrations have no limit."""

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_BUSY_RECOVERY}
"""Not SQLITE_BUSY_SNAPSHOT: the transaction has read what is outdated, and only another one can write."""
_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_NO_SPACE = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}
_NO_SHARING = {sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMMAP}
_IS_ALONE = "tracker: is alone"
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}

_POSTGRES_NO_SPACE = "53100"
_POSTGRES_PASSING = ("08", "40001", "40P01", "53", "55P03", "57P")
"""Prefixes of transient SQL states: connections, conflicts, resources, locks, a server that stops or starts."""


def open_database(url: str, *, password: str = "", silence_s: float = SILENCE_S) -> Engine:
    """Return an engine whose SQLite connections use WAL, so that readers never block the one writer.

    Connections to PostgreSQL are tested before use, and broken ones are replaced. A server that sends nothing for
    `silence_s` counts as not responding.

    Raises:
        ConfigError: the URL is invalid, contains a password, or its driver is missing.
    """
    checked = checked_database_url(url)
    try:
        address = make_url(checked)
        if address.get_backend_name() != "sqlite":
            if password:
                address = address.set(password=password)
            return _open_postgres(address, silence_s)
        engine = create_engine(address, connect_args={"factory": SharedConnection, "timeout": 0})
    except ImportError as error:
        raise ConfigError(
            f"the PostgreSQL driver is not installed: {error}",
            hint="install it: pip install 'checkpoint-tracker[postgresql]'",
        ) from error
    except (ArgumentError, ValueError) as error:
        raise ConfigError(
            f"invalid database URL {checked!r}: {error}",
            hint="use postgresql://user@host/name or sqlite:////absolute/path.db",
        ) from error
    event.listen(engine, "do_connect", _connect_sqlite)
    event.listen(engine, "checkin", _end_alone)
    return engine


def open_for_reading(url: str, *, password: str = "") -> Engine:
    """Return an engine that cannot write, for users without the right to. A transaction sees one moment.

    It keeps no open connection, so it needs no `dispose`.

    Raises:
        ConfigError: as `open_database`, or the file of a SQLite database does not exist.
    """
    engine = open_database(url, password=password)
    if engine.dialect.name == "sqlite":
        path = Path(engine.url.database or "")
        if not path.is_file():
            hint = "evaluate checkpoints with `tracker watch`, or pass another place"
            raise ConfigError(f"no database {path}", hint=hint)
        reading = create_engine("sqlite://", creator=partial(_connect_for_reading, path), poolclass=NullPool)
        event.listen(reading, "begin", _begin)
        return reading
    event.listen(engine, "connect", _forbid_writing)
    event.listen(engine, "checkin", _let_go)
    return engine


@contextmanager
def mapped_database_errors(engine: Engine) -> Iterator[None]:
    """Convert errors of the database driver to those of `eval_jobs.errors`.

    Raises:
        DiskFull: no space is left.
        StoreUnavailable: the database does not respond, closed the connection or is locked: a retry may succeed.
        StoreError: any other error of the database.
    """
    try:
        yield
    except DBAPIError as error:
        where = engine.url.render_as_string(hide_password=True)
        raise _mapped(error, where) from error


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """Yield a connection whose changes are committed if the context ends without an error.

    Raises:
        DiskFull, StoreUnavailable, StoreError: as `mapped_database_errors`.
    """
    with mapped_database_errors(engine), engine.begin() as connection:
        yield connection


def insert_into(connection: Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    """Return an insert in the dialect of the database, for `on_conflict_do_nothing` and `on_conflict_do_update`."""
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)
    return sqlite.insert(table)


def put_row(connection: Connection, table: Table, row: Mapping[str, object]) -> None:
    """Insert a row, or replace the one with the same key."""
    insert = insert_into(connection, table).values(row)
    connection.execute(insert.on_conflict_do_update(index_elements=table.primary_key, set_=row))


def add_row(connection: Connection, table: Table, row: Mapping[str, object]) -> bool:
    """Insert a row and return True; return False if there is one with the same key."""
    insert = insert_into(connection, table).values(row).on_conflict_do_nothing()
    # A returned row proves the insert; drivers count inserted rows differently.
    return connection.execute(insert.returning(*table.primary_key)).first() is not None


def belongs_to(run_id: ColumnElement[str], run: str) -> ColumnElement[bool]:
    """Return whether a row belongs to `run` or one of its sub-folders: `run_scope.is_of` in SQL."""
    # Not LIKE, which is case-insensitive in SQLite.
    prefix = prefix_of(run)
    return or_(run_id == run, func.substr(run_id, 1, len(prefix)) == prefix)


def _open_postgres(address: URL, silence_s: float) -> Engine:
    from eval_jobs.queue.patience_sql import PatientConnection  # deferred: the driver is optional

    # No limit on connections: a thread that holds a lock for a long time must not block other threads.
    options = {name: value for name, value in POSTGRES_OPTIONS.items() if name not in address.query}
    engine = create_engine(address, pool_pre_ping=True, max_overflow=-1, connect_args=options)

    def connect(_dialect: object, _record: object, args: Any, options: Any) -> PatientConnection:  # noqa: ANN401
        connection = PatientConnection.connect(*args, **options)
        connection.silence_s = silence_s
        return connection

    event.listen(engine, "do_connect", connect)
    return engine


def _forbid_writing(connection: DBAPIConnection, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("SET default_transaction_read_only = on")
    cursor.execute("SET default_transaction_isolation = 'repeatable read'")
    cursor.close()
    connection.commit()


def _let_go(_: DBAPIConnection | None, record: ConnectionPoolEntry) -> None:
    record.invalidate()


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")


def _connect_for_reading(path: Path) -> sqlite3.Connection:
    address = f"file:{quote(str(path.absolute()))}?mode=ro"
    # Without an isolation level, the driver begins no transaction by itself.
    connection = sqlite3.connect(
        address, uri=True, timeout=BUSY_TIMEOUT_S, check_same_thread=False, isolation_level=None
    )
    try:
        connection.execute("SELECT 1 FROM sqlite_master")
    except sqlite3.OperationalError as error:
        connection.close()
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            raise
        what = f"cannot read the database {path}: {error}"
        hint = f"read it while `tracker watch` runs, as a user who may write in {path.parent}, or copy the folder"
        raise StoreError(what, hint=hint) from error
    return connection


class SharedConnection(sqlite3.Connection):
    """A connection to a SQLite file that waits for other processes up to `wait_s`."""

    wait_s = BUSY_TIMEOUT_S

    def cursor(self, *_: object) -> sqlite3.Cursor:  # type: ignore[override]
        """Return a cursor that waits."""
        return super().cursor(_SharedCursor)

    def commit(self) -> None:
        """Commit; without WAL, as on some file systems, this waits too."""
        self.patiently(super().commit)

    def patiently(self, run: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        """Call `run`, again while another process holds the lock that it needs."""
        deadline_s = time.monotonic() + self.wait_s
        while True:
            try:
                return run(*given, **named)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode not in _BUSY or time.monotonic() > deadline_s:
                    raise
            time.sleep(random.uniform(*BUSY_POLL_S))  # noqa: S311, TID251 - no secret; the driver waited here itself


class _SharedCursor(sqlite3.Cursor):
    connection: SharedConnection

    def execute(self, *given: Any) -> Self:  # noqa: ANN401 - sqlite3's
        return self.connection.patiently(super().execute, *given)

    def executemany(self, *given: Any) -> Self:  # noqa: ANN401 - sqlite3's
        return self.connection.patiently(super().executemany, *given)


def _connect_sqlite(dialect: Dialect, record: ConnectionPoolEntry, args: Any, options: Any) -> DBAPIConnection:  # noqa: ANN401
    """Return a connection; on a full disk, where the file that processes share does not fit, one that is alone."""
    connection = dialect.connect(*args, **options)
    try:
        _prepare_sqlite(connection)
    except sqlite3.OperationalError as error:
        connection.close()
        if error.sqlite_errorcode not in _NO_SHARING:
            raise
        connection = dialect.connect(*args, **options)
        connection.cursor().execute("PRAGMA locking_mode=EXCLUSIVE")
        _prepare_sqlite(connection)
        record.info[_IS_ALONE] = True
    return connection


def _end_alone(_: DBAPIConnection | None, record: ConnectionPoolEntry) -> None:
    if record.info.get(_IS_ALONE):
        record.invalidate()  # it keeps all others out


def _prepare_sqlite(connection: DBAPIConnection) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.close()


def _mapped(error: DBAPIError, where: str) -> StoreError:
    cause = error.orig
    if isinstance(cause, sqlite3.Error):
        return _mapped_sqlite(cause, where)
    state = str(getattr(cause, "sqlstate", None) or "")
    reason = " ".join(str(cause).split())
    if state == _POSTGRES_NO_SPACE:
        return DiskFull(f"no space left for the database {where}: {reason}", hint="free disk space on its server")
    if state.startswith(_POSTGRES_PASSING) or _is_cut(error, state):
        return StoreUnavailable(
            f"cannot use the database {where}: {reason}", hint="check its server, the network, the user and password"
        )
    return StoreError(f"the database {where} failed: {reason}", hint="check the permissions of its user")


def _is_cut(error: DBAPIError, state: str) -> bool:
    kinds = [kind.__name__ for kind in type(error.orig).__mro__]
    return error.connection_invalidated or (not state and "OperationalError" in kinds)  # also for a timeout


def _mapped_sqlite(cause: sqlite3.Error, where: str) -> StoreError:
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF  # without the extended part, which does not matter here
    if code in _NO_SPACE:
        what = f"no space left for the database {where}, or a disk error: {cause}"
        return DiskFull(what, hint="free disk space, or check the disk")
    if code in _LOCKED:
        return StoreUnavailable(
            f"the database {where} has been locked by another process for {BUSY_TIMEOUT_S:g} s: {cause}",
            hint="stop the program that holds the lock",
        )
    if code in _DAMAGED:
        return StoreError(
            f"the database {where} is damaged: {cause}",
            hint="move the file away: the next start evaluates the pinned checkpoints again; MLflow keeps its results",
        )
    return StoreError(f"the database {where} failed: {cause}", hint="check that the file and its folder are writable")
