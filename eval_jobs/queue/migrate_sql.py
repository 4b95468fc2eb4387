"""Brings the tables of a database to the version that this code works with, whenever the database is opened.

    bring_up_to_date(engine, QUEUE_TABLES)

Each package has a history of its own: numbered scripts in a folder `versions`, and a table in the database that says
which of them was carried out last. All steps are one transaction that no other process can have at the same time: of
two processes that start together one does the work, and one that is killed in the middle leaves the old tables.

A change of a table is a new script `v0002_what.py` beside the others, and the same change in the `Table`; a test
compares the two.
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
"""Any number that nobody else uses in that database: "tracker" in ASCII, and which of our locks it is."""


@dataclass(frozen=True, kw_only=True)
class TableHistory:
    """One package's tables along their versions."""

    name: str
    """What the tables hold, for messages."""
    folder: Path
    """Has a folder `versions` with the scripts."""
    version_table: str

    @property
    def versions(self) -> tuple[str, ...]:
        """All versions that this code knows, oldest first, such as `0001`."""
        return tuple(sorted(path.stem[1:5] for path in (self.folder / "versions").glob("v[0-9]*.py")))


QUEUE_TABLES = TableHistory(name="queue", folder=Path(__file__).parent, version_table="eval_jobs_version")


def bring_up_to_date(engine: Engine, history: TableHistory) -> None:
    """Create or change the tables of `history` where they are not those of its newest version.

    Raises:
        SchemaTooNew: a newer program wrote them.
        StoreError: as `mapped_database_errors`.
    """
    with mapped_database_errors(engine), engine.connect() as connection:
        if _is_newest(connection, history):
            return
    with mapped_database_errors(engine), _alone(engine) as connection:
        if _is_newest(connection, history):  # by now: another process was first
            return
        before = _version(connection, history)
        from eval_jobs.queue.steps_sql import carry_out_missing  # here: it takes long and rarely has something to do

        carry_out_missing(connection, folder=history.folder, version_table=history.version_table)
    if before:
        log.warning("migrated the %s tables from version %s to %s", history.name, before, history.versions[-1])


# --- private


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
    """Return the version of the tables; empty where nothing was ever carried out."""
    if not inspect(connection).has_table(history.version_table):
        return ""
    stored: Select[str] = select(column("version_num", String)).select_from(table(history.version_table))
    return connection.scalar(stored) or ""


@contextmanager
def _alone(engine: Engine) -> Iterator[Connection]:
    """Yield a connection in a transaction that begins when nobody else is in it, and is kept as a whole or not."""
    if engine.dialect.name == "sqlite":
        # The driver would begin none before a CREATE TABLE.
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection
            connection.exec_driver_sql("COMMIT")
        return
    with engine.connect() as connection:
        driver: Any = connection.connection.dbapi_connection
        driver.silence_s = None  # steps may take long
        connection.detach()  # used once: nobody else gets a connection that waits for ever
        with connection.begin():
            connection.execute(select(func.pg_advisory_xact_lock(_POSTGRES_LOCK)))
            yield connection
