"""Creates the tables of a database, or migrates them to the version of this code, whenever the database is opened.

    bring_up_to_date(engine, QUEUE_TABLES)

A new database gets the tables as the code defines them. Others run the scripts in a folder `versions` that are newer
than the version stored in the database. Both happen in one exclusive transaction: of two processes that start
together, one does the work, and a process that is killed in the middle leaves the old tables.

To change a table, change the `Table` and add a script for alembic to the folder, such as `v0003_what.py`.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Connection, Engine, MetaData, Select, String, Table, func, inspect, select

from eval_jobs.errors import OtherSchema
from eval_jobs.queue.database_sql import mapped_database_errors
from eval_jobs.queue.plans_sql import METADATA

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
    metadata: MetaData
    """The tables in their newest version."""

    @property
    def versions(self) -> tuple[str, ...]:
        """All versions in this code, oldest first, such as `0001`."""
        return tuple(sorted(path.stem[1:5] for path in (self.folder / "versions").glob("v[0-9]*.py")))

    @property
    def stored_version(self) -> Table:
        """The table in which alembic keeps the version."""
        return Table(self.version_table, MetaData(), Column("version_num", String(32), primary_key=True))


QUEUE_TABLES = TableHistory(
    name="queue", folder=Path(__file__).parent, version_table="eval_jobs_version", metadata=METADATA
)


def bring_up_to_date(engine: Engine, history: TableHistory) -> None:
    """Create or migrate the tables of `history` if they do not have its newest version.

    Raises:
        OtherSchema: a newer program wrote the tables.
        StoreError: as `mapped_database_errors`.
    """
    with mapped_database_errors(engine), engine.connect() as connection:
        if _is_newest(connection, history):
            return
    with mapped_database_errors(engine), _alone(engine) as connection:
        if _is_newest(connection, history):  # checked again: another process may have been first
            return
        before = _version(connection, history)
        if not before:
            _create(connection, history)
            return
        _run_missing_scripts(connection, history)
    log.warning("migrated the %s tables from version %s to %s", history.name, before, history.versions[-1])


def demand_newest(engine: Engine, history: TableHistory) -> None:
    """Refuse tables of another version, which a reader without the right to write cannot migrate.

    Raises:
        OtherSchema: they are older or newer, or there are none.
    """
    with mapped_database_errors(engine), engine.connect() as connection:
        if _is_newest(connection, history):
            return
        found = _version(connection, history) or "none"
    raise OtherSchema(
        f"the {history.name} tables have schema version {found}; this version reads {history.versions[-1]}",
        hint="run any `tracker` command once to migrate them",
    )


def _is_newest(connection: Connection, history: TableHistory) -> bool:
    found, known = _version(connection, history), history.versions
    if found and found not in known:
        where = connection.engine.url.render_as_string(hide_password=True)
        raise OtherSchema(
            f"the {history.name} tables in {where} have schema version {found}; this version supports {known[-1]}",
            hint="update checkpoint-tracker: a newer version wrote them",
        )
    return found == known[-1]


def _version(connection: Connection, history: TableHistory) -> str:
    """Return the version of the tables; empty if no script has ever run."""
    if not inspect(connection).has_table(history.version_table):
        return ""
    stored: Select[str] = select(history.stored_version.c.version_num)
    return connection.scalar(stored) or ""


def _create(connection: Connection, history: TableHistory) -> None:
    history.metadata.create_all(connection)
    history.stored_version.create(connection)
    connection.execute(history.stored_version.insert().values(version_num=history.versions[-1]))


def _run_missing_scripts(connection: Connection, history: TableHistory) -> None:
    from alembic.operations import Operations  # deferred: slow to import, rarely needed
    from alembic.runtime.migration import MigrationContext, MigrationStep, RevisionStep
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(history.folder)

    def missing(carried_out: str | tuple[str, ...], _: MigrationContext) -> list[RevisionStep]:
        newest_first = scripts.iterate_revisions("head", carried_out, implicit_base=True)
        steps = [MigrationStep.upgrade_from_script(scripts.revision_map, script) for script in newest_first]
        return steps[::-1]

    context = MigrationContext.configure(connection, opts={"fn": missing, "version_table": history.version_table})
    with Operations.context(context):
        context.run_migrations()


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
