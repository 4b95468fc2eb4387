"""Databases of every version are opened: new ones, those from before versions were kept, and newer ones."""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, Integer, MetaData, inspect, text

from eval_jobs.errors import SchemaTooNew
from eval_jobs.queue import sql_queue
from eval_jobs.queue.database_sql import open_database, transaction
from eval_jobs.queue.migrate_sql import TableHistory, bring_up_to_date
from tests.tables import HISTORIES, bring_things_up_to_date, open_all, things
from tracker.adapters.alerts import tables_sql as alert_tables_sql
from tracker.adapters.database import lead_sql
from tracker.adapters.history import sweeps_sql
from tracker.adapters.history import tables_sql as history_tables_sql
from tracker.adapters.tracking import outbox_sql

METADATA = tuple(
    tables.METADATA for tables in (sql_queue, history_tables_sql, outbox_sql, lead_sql, alert_tables_sql, sweeps_sql)
)

OLDEST_PLANS = """
CREATE TABLE eval_plans (id VARCHAR(64) NOT NULL, run_id TEXT NOT NULL, step INTEGER NOT NULL,
    state VARCHAR(16) NOT NULL, plan TEXT NOT NULL, added_at VARCHAR(32) NOT NULL, attempt INTEGER NOT NULL,
    lost INTEGER NOT NULL, worker TEXT NOT NULL, claimed_at VARCHAR(32), lease_until VARCHAR(32), note TEXT NOT NULL,
    finished_at VARCHAR(32), record {binary}, PRIMARY KEY (id));
CREATE INDEX eval_plans_by_state ON eval_plans (state, step);
INSERT INTO eval_plans VALUES ('p', 'run', 7, 'waiting', '{{}}', '2026-11-20T09:57:00.000000+00:00', 1, 0, '', NULL,
    NULL, '', NULL, NULL)
"""
"""The first table of plans that there was: it did not say whether a benchmark failed."""

OLDEST_RESULTS = """
CREATE TABLE history_gaps (run_id TEXT NOT NULL, step BIGINT NOT NULL, code VARCHAR(64) NOT NULL, gap TEXT NOT NULL,
    PRIMARY KEY (run_id, step, code));
INSERT INTO history_gaps VALUES ('run', 7, 'E-CKPT-VANISHED', '{{}}')
"""
"""Some of the tables that came one after the other before versions were kept."""


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/tracker.db"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    engine = open_database(url)
    yield engine
    engine.dispose()


def differences(engine: Engine) -> list[object]:
    """Return what the database has otherwise than the tables that the code works with."""
    whole = MetaData()
    for metadata in METADATA:
        for one in metadata.tables.values():
            one.to_metadata(whole)
    with engine.connect() as connection:
        versions = {history.version_table for history in HISTORIES}
        options = {"include_name": lambda name, _kind, _parents: name not in versions, "compare_type": other_type}
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), whole))


def other_type(
    context: MigrationContext, _inspected: object, _column: object, found: object, meant: object
) -> bool | None:
    """SQLite has one kind of integer, whatever it is called; for the rest ask alembic."""
    both_integers = isinstance(found, Integer) and isinstance(meant, Integer)
    return False if both_integers and context.dialect.name == "sqlite" else None


def execute(engine: Engine, script: str) -> None:
    binary = "BYTEA" if engine.dialect.name == "postgresql" else "BLOB"
    with transaction(engine) as connection:
        for statement in script.format(binary=binary).split(";"):
            connection.execute(text(statement))


def version(engine: Engine, history: TableHistory) -> str | None:
    with transaction(engine) as connection:
        stored: str | None = connection.scalar(text(f"SELECT version_num FROM {history.version_table}"))  # noqa: S608 - a constant
    return stored


def test_a_new_database_has_the_tables_that_the_code_works_with(url: str, engine: Engine) -> None:
    open_all(url)
    assert differences(engine) == []
    assert [version(engine, history) for history in HISTORIES] == [history.versions[-1] for history in HISTORIES]


def test_opening_a_database_again_changes_nothing(url: str, engine: Engine) -> None:
    open_all(url)
    execute(engine, OLDEST_RESULTS.split(";")[1])
    open_all(url)
    with transaction(engine) as connection:
        assert connection.scalar(text("SELECT count(*) FROM history_gaps")) == 1


def test_a_database_from_before_versions_were_kept_is_taken_over_with_what_is_in_it(url: str, engine: Engine) -> None:
    execute(engine, OLDEST_PLANS)
    execute(engine, OLDEST_RESULTS)
    open_all(url)
    assert differences(engine) == []
    with transaction(engine) as connection:
        assert connection.execute(text("SELECT id, failed FROM eval_plans")).all() == [("p", None)]
        assert connection.execute(text("SELECT run_id, step FROM history_gaps")).all() == [("run", 7)]


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.name)
def test_tables_of_a_newer_program_are_refused_and_left_alone(engine: Engine, history: TableHistory) -> None:
    bring_up_to_date(engine, history)
    execute(engine, f"UPDATE {history.version_table} SET version_num = '9001'")  # noqa: S608 - a constant
    with pytest.raises(SchemaTooNew, match=r"9001.*update checkpoint-tracker") as raised:
        bring_up_to_date(engine, history)
    assert raised.value.code == "E-STORE-SCHEMA"
    assert version(engine, history) == "9001"


def test_processes_that_start_at_once_create_the_tables_once(url: str, engine: Engine) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(3) as pool:
        pool.map(open_all, [url] * 6)
    assert differences(engine) == []


def test_an_up_to_date_database_is_opened_without_alembic(url: str) -> None:
    open_all(url)
    code = (
        "import sys; from pathlib import Path; from eval_jobs.queue.database_sql import open_database as d;"
        "from eval_jobs.queue.sql_queue import SqlQueue; from tracker.adapters.history.store_sql import SqlHistory;"
        f"e = d({url!r}); SqlQueue(e); SqlHistory(e, Path()); e.dispose(); sys.exit('alembic' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


FIRST = """
from alembic import op
import sqlalchemy as sa
revision, down_revision = "0001", None
def upgrade():
    op.create_table("things", sa.Column("a", sa.Integer))
    op.execute("INSERT INTO things VALUES (1)")
"""
SECOND = """
from alembic import op
import os, signal, sqlalchemy as sa
revision, down_revision = "0002", "0001"
def upgrade():
    op.create_table("more_things", sa.Column("b", sa.Integer))
    op.execute("UPDATE things SET a = 2")
    op.add_column("things", sa.Column("b", sa.Integer))
    {then}
"""


def steps(folder: Path, *scripts: str) -> TableHistory:
    versions = folder / "versions"
    versions.mkdir(parents=True, exist_ok=True)
    for number, script in enumerate(scripts, start=1):
        (versions / f"v{number:04}_step.py").write_text(script)
    return things(folder)


@pytest.mark.parametrize("then", ["os.kill(os.getpid(), signal.SIGKILL)", "raise ValueError('a broken script')"])
def test_a_change_of_the_tables_that_is_cut_off_leaves_the_old_ones(
    url: str, engine: Engine, tmp_path: Path, then: str
) -> None:
    history = steps(tmp_path / "scripts", FIRST)
    bring_up_to_date(engine, history)
    steps(tmp_path / "scripts", FIRST, SECOND.format(then=then))
    process = multiprocessing.get_context("spawn").Process(target=bring_things_up_to_date, args=(url, history.folder))
    process.start()
    process.join()
    assert process.exitcode == (-signal.SIGKILL if "kill" in then else 1)
    assert version(engine, history) == "0001"
    assert set(inspect(engine).get_table_names()) == {"things", "things_version"}
    with transaction(engine) as connection:
        assert connection.execute(text("SELECT * FROM things")).all() == [(1,)]
    steps(tmp_path / "scripts", FIRST, SECOND.format(then="pass"))
    bring_up_to_date(engine, history)
    assert version(engine, history) == "0002"
    with transaction(engine) as connection:
        assert connection.execute(text("SELECT a, b FROM things")).all() == [(2, None)]


def test_a_change_of_the_tables_is_said(url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "scripts"
    steps(folder, FIRST)
    bring_things_up_to_date(url, folder)
    assert not caplog.messages
    steps(folder, FIRST, SECOND.format(then="pass"))
    bring_things_up_to_date(url, folder)
    assert caplog.messages == ["the tables of the things were brought from version 0001 to 0002"]


def test_the_versions_of_a_package_are_one_line_from_the_first_to_the_newest() -> None:
    for history in HISTORIES:
        line = [script.revision for script in ScriptDirectory(history.folder).walk_revisions()]
        assert tuple(reversed(line)) == history.versions
