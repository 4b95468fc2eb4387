"""Opens the one SQL database of a tracker: SQLite in a file by default, PostgreSQL by URL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, Table, create_engine, event, make_url
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry

from eval_jobs.errors import ConfigError, DiskFull, StoreError

BUSY_TIMEOUT_MS = 30_000


def open_database(url: str) -> Engine:
    """Return an engine whose SQLite connections use WAL, so that readers never block the one writer.

    Raises:
        ConfigError: the URL cannot be parsed or names an unknown driver.
    """
    try:
        engine = create_engine(make_url(url))
    except (ArgumentError, ImportError) as error:
        raise ConfigError(
            f"the database URL {url!r} cannot be used: {error}",
            hint="use sqlite:////absolute/path.db or postgresql+psycopg://user@host/name",
        ) from error
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
    return engine


@contextmanager
def mapped_errors(engine: Engine) -> Iterator[None]:
    """Turn errors of the database driver into ours.

    Raises:
        DiskFull: no space is left.
        StoreError: anything else that the database refuses.
    """
    try:
        yield
    except DBAPIError as error:
        where = engine.url.render_as_string(hide_password=True)
        reason = str(error.orig)
        if "disk is full" in reason or "No space left" in reason or "disk I/O error" in reason:
            raise DiskFull(f"no space is left for the database {where}: {reason}", hint="free some space") from error
        raise StoreError(
            f"the database {where} refused: {reason}", hint="check that it is reachable and writable"
        ) from error


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """Yield a connection whose changes are kept when the context ends without an error.

    Raises:
        DiskFull, StoreError: as `mapped_errors`.
    """
    with mapped_errors(engine), engine.begin() as connection:
        yield connection


def insert_into(connection: Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    """Return an insert that knows `on_conflict_do_nothing` and `on_conflict_do_update` in the database's own words."""
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)


# --- private


def _prepare_sqlite(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.close()
