"""Migrates the tables of a database to the version of this code whenever the database is opened.

    bring_up_to_date(engine, QUEUE_TABLES)

Each package has its own history: numbered scripts in a folder `versions`, and a table in the database with the version
of the last one that ran. All scripts run in one exclusive transaction. Of two processes that start together, one does
the work, and a process that is killed in the middle leaves the old tables.

To change a table, add a script `v0002_what.py` to the folder and make the same change in the `Table`; a test compares
the two.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Select, String, column, func, inspect, select, table

from eval_jobs.errors import SchemaTooNew
from eval_jobs.queue.database_sql import mapped_database_errors

log = logging.getLogger(__name__)

_POSTGRES_LOCK = 0x7472_6163_6B65_7201
"""A number that no other program uses in that database: "tracker" in ASCII, and the number of the lock."""


@dataclass(frozen=True, kw_only=True)
class TableHistory:
    """The versions of one package's tables."""

    name: str
    """Content of the tables, for messages."""
    folder: Path
    """Contains the folder `versions` with the scripts."""
    version_table: str

    @property
    def versions(self) -> tuple[str, ...]:
        """All versions in this code, oldest first, such as `0001`."""
        return tuple(sorted(path.stem[1:5] for path in (self.folder / "versions").glob("v[0-9]*.py")))


QUEUE_TABLES = TableHistory(name="queue", folder=Path(__file__).parent, version_table="eval_jobs_version")


def bring_up_to_date(engine: Engine, history: TableHistory) -> None:
    """Create or migrate the tables of `history` if they do not have its newest version.

    Raises:
        SchemaTooNew: a newer program wrote the tables.
        StoreError: as `mapped_database_errors`.
    """
    with mapped_database_errors(engine), engine.connect() as connection:
        if _is_newest(connection, history):
            return
    with mapped_database_errors(engine), _alone(engine) as connection:
        if _is_newest(connection, history):  # checked again: another process may have been first
            return
        before = _version(connection, history)
        from eval_jobs.queue.steps_sql import carry_out_missing  # deferred: slow to import, rarely needed

        carry_out_missing(connection, folder=history.folder, version_table=history.version_table)
    if before:
        log.warning("migrated the %s tables from version %s to %s", history.name, before, history.versions[-1])


def _is_newest(connection: Connection, history: TableHistory) -> bool:
    found, known = _version(connection, history), history.versions
    if found and found not in known:
        where = connection.engine.url.render_as_string(hide_password=True)
        raise SchemaTooNew(
            f"the {history.name} tables in {where} have schema version {found}; this version supports {known[-1]}",
            hint="update checkpoint-tracker: a newer version wrote them",
        )
    return found == known[-1]


def _version(connection: Connection, history: TableHistory) -> str:
    """Return the version of the tables; empty if no script has ever run."""
    if not inspect(connection).has_table(history.version_table):
        return ""
    stored: Select[str] = select(column("version_num", String)).select_from(table(history.version_table))
    return connection.scalar(stored) or ""


@contextmanager
def _alone(engine: Engine) -> Iterator[Connection]:
    """Yield a connection in an exclusive transaction, which is committed completely or not at all."""
    if engine.dialect.name == "sqlite":
        # The driver begins no transaction before a CREATE TABLE.
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection
            connection.exec_driver_sql("COMMIT")
        return
    with engine.connect() as connection:
        driver: Any = connection.connection.dbapi_connection
        driver.silence_s = None  # steps may take long
        connection.detach()  # used once: a connection without a timeout must not return to the pool
        with connection.begin():
            connection.execute(select(func.pg_advisory_xact_lock(_POSTGRES_LOCK)))
            yield connection
