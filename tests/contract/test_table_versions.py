"""Databases of every version are opened: new ones, those of an older program, and those of a newer one."""

import multiprocessing
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, Integer, MetaData, text

from eval_jobs.errors import OtherSchema
from eval_jobs.queue.database_sql import open_database, transaction
from eval_jobs.queue.migrate_sql import TableHistory, bring_up_to_date
from tests.records import forgetting_run
from tests.tables import HISTORIES, open_all
from tracker.adapters.database.tables import TRACKER_TABLES
from tracker.adapters.health.history_sql import SqlTrainingHistory
from tracker.adapters.history.store_sql import SqlHistory

FIRST = frozenset(
    (
        *(f"history_{name}" for name in ("records", "reports", "incidents", "acceptances", "gaps", "calibrations")),
        *("history_alerts", "outbox_items", "outbox_points", "outbox_values", "alert_outbox", "alert_silences"),
        *("sweep_turns", "sweep_looks", "sweep_leases", "sweep_results", "watch_leaders"),
    )
)
"""Tables of the first version that still exist."""
A_GAP = "INSERT INTO history_gaps VALUES ('run', 7, 'E-CKPT-VANISHED', '{}')"
NOW = TRACKER_TABLES.versions[-1]
NEXT = f"{int(NOW) + 1:04}"
SECOND = """
from alembic import op
import os, signal, sqlalchemy as sa
revision, down_revision = "NEXT", "NOW"
def upgrade():
    op.create_table("more_things", sa.Column("a", sa.Integer))
    op.execute("UPDATE history_gaps SET step = 8")
    op.add_column("history_gaps", sa.Column("cause", sa.Text))
    THEN
"""
"""A made-up next version of the tracker's tables."""

BEFORE_HOSTS = (
    "DROP TABLE health_runs",
    "DROP TABLE health_streams",
    "DROP TABLE health_readers",
    "DROP TABLE health_curves",
    """CREATE TABLE health_runs (run_id TEXT NOT NULL PRIMARY KEY, run TEXT NOT NULL, read_at VARCHAR(32) NOT NULL,
    last_step BIGINT, productive_share DOUBLE PRECISION, progress TEXT NOT NULL, usual_s DOUBLE PRECISION,
    summary TEXT NOT NULL, state TEXT NOT NULL)""",
    """CREATE TABLE health_streams (key VARCHAR(64) NOT NULL PRIMARY KEY, run TEXT NOT NULL, path TEXT NOT NULL,
    cursor TEXT NOT NULL)""",
    "CREATE INDEX health_streams_by_run ON health_streams (run)",
    "CREATE TABLE health_readers (run TEXT NOT NULL PRIMARY KEY, reader INTEGER NOT NULL)",
    "INSERT INTO health_readers VALUES ('run', 4)",
    "INSERT INTO health_streams VALUES ('k', 'run', 'a\\u00fc.log', '{}')",
    """INSERT INTO health_runs VALUES ('run', 'run', '2026-01-01T00:00:00.000000+00:00', 70, NULL, 'training', 2.5,
    '{}', '{}')""",
    "INSERT INTO health_points (run_id, key, step, value, stated) VALUES ('run', 'train/loss', 70, 1.5, false)",
    f"UPDATE {TRACKER_TABLES.version_table} SET version_num = '0007'",  # noqa: S608 - a constant
)
"""What an older program left of a training's logs."""
BY_HOST = ("runs", "streams", "readers", "curves")


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
    for history in HISTORIES:
        for one in history.metadata.tables.values():
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


def execute(engine: Engine, statement: str) -> None:
    with transaction(engine) as connection:
        connection.execute(text(statement))


def next_version(folder: Path, then: str = "pass") -> TableHistory:
    """Return the tracker's tables as they would go on in `folder`."""
    versions = folder / "versions"
    shutil.copytree(TRACKER_TABLES.folder / "versions", versions, dirs_exist_ok=True)
    script = SECOND.replace("NEXT", NEXT).replace("NOW", NOW).replace("THEN", then)
    (versions / f"v{NEXT}_things.py").write_text(script)
    return replace(TRACKER_TABLES, folder=folder)


def gaps(engine: Engine) -> list[tuple[object, ...]]:
    with transaction(engine) as connection:
        return [tuple(row) for row in connection.execute(text("SELECT * FROM history_gaps"))]


def version(engine: Engine, history: TableHistory) -> str | None:
    with transaction(engine) as connection:
        stored: str | None = connection.scalar(text(f"SELECT version_num FROM {history.version_table}"))  # noqa: S608 - a constant
    return stored


def test_a_new_database_has_the_tables_that_the_code_works_with(url: str, engine: Engine) -> None:
    open_all(url)
    assert differences(engine) == []
    assert [version(engine, history) for history in HISTORIES] == [history.versions[-1] for history in HISTORIES]


def test_what_was_read_of_logs_before_there_were_several_machines_is_that_of_the_watcher(
    url: str, engine: Engine
) -> None:
    open_all(url)
    for statement in BEFORE_HOSTS:
        execute(engine, statement)
    open_all(url)
    assert differences(engine) == []
    with transaction(engine) as connection:
        rows = {name: [*connection.execute(text(f"SELECT * FROM health_{name}")).mappings()] for name in BY_HOST}  # noqa: S608 - constants
    assert rows["readers"] == [{"run": "run", "host": "", "reader": 4}]
    assert rows["curves"] == [{"run_id": "run", "key": "train/loss", "host": ""}]
    assert [(row["host"], row["last_step"], row["progress"]) for row in rows["runs"]] == [("", 70, "training")]
    assert [(row["key"], row["host"], row["path"]) for row in rows["streams"]] == [("k", "", "a\\u00fc.log")]
    assert [one.last_step for one in SqlTrainingHistory(engine).progress("run")] == [70]


def test_tables_of_the_first_version_get_every_later_change(url: str, engine: Engine) -> None:
    open_all(url)
    execute(engine, "ALTER TABLE outbox_items DROP COLUMN reason")
    for name in TRACKER_TABLES.metadata.tables.keys() - FIRST:
        execute(engine, f"DROP TABLE {name}")
    execute(engine, f"UPDATE {TRACKER_TABLES.version_table} SET version_num = '0001'")  # noqa: S608 - a constant
    open_all(url)
    assert differences(engine) == []
    assert version(engine, TRACKER_TABLES) == TRACKER_TABLES.versions[-1]


def test_a_report_with_fields_that_are_no_longer_used_is_read(engine: Engine, tmp_path: Path) -> None:
    report = forgetting_run().reports[-1]
    history = SqlHistory(engine, tmp_path)
    history.append_reports(report)
    old = """replace(report, '"n_gained":', '"n_lost_newest":9,"n_gained_step":null,"n_gained":')"""
    execute(engine, f"UPDATE history_reports SET report = {old.replace(':', chr(92) + ':')}")  # noqa: S608 - a constant
    with transaction(engine) as connection:
        assert "n_lost_newest" in str(connection.scalar(text("SELECT report FROM history_reports")))
    assert history.reports(report.run_id) == (report,)


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.name)
def test_tables_of_a_newer_version_are_refused_and_unchanged(engine: Engine, history: TableHistory) -> None:
    bring_up_to_date(engine, history)
    execute(engine, f"UPDATE {history.version_table} SET version_num = '9001'")  # noqa: S608 - a constant
    with pytest.raises(OtherSchema, match=r"9001.*update checkpoint-tracker") as raised:
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


def test_a_table_migration_keeps_all_rows_and_is_logged_once(
    url: str, engine: Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    open_all(url)
    execute(engine, A_GAP)
    open_all(url)
    assert not caplog.messages
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        pool.starmap(open_all, [(url, (next_version(tmp_path),))] * 6)
    bring_up_to_date(engine, next_version(tmp_path))
    assert gaps(engine) == [("run", 8, "E-CKPT-VANISHED", "{}", None)]
    assert version(engine, TRACKER_TABLES) == NEXT
    with pytest.raises(
        OtherSchema, match=rf"schema version {NEXT}; this version supports {NOW}.*update checkpoint-tracker"
    ):
        bring_up_to_date(engine, TRACKER_TABLES)


@pytest.mark.parametrize("then", ["os.kill(os.getpid(), signal.SIGKILL)", "raise ValueError('a broken script')"])
def test_a_change_of_the_tables_that_is_cut_off_leaves_the_old_ones(
    url: str, engine: Engine, tmp_path: Path, then: str, caplog: pytest.LogCaptureFixture
) -> None:
    open_all(url)
    execute(engine, A_GAP)
    cut_off = (next_version(tmp_path, then),)
    process = multiprocessing.get_context("spawn").Process(target=open_all, args=(url, cut_off))
    process.start()
    process.join()
    assert process.exitcode == (-signal.SIGKILL if "kill" in then else 1)
    assert version(engine, TRACKER_TABLES) == NOW
    assert differences(engine) == []
    assert gaps(engine) == [("run", 7, "E-CKPT-VANISHED", "{}")]
    bring_up_to_date(engine, next_version(tmp_path))
    assert gaps(engine) == [("run", 8, "E-CKPT-VANISHED", "{}", None)]
    assert caplog.messages == [f"migrated the history and outbox tables from version {NOW} to {NEXT}"]


def test_the_versions_of_a_package_are_one_line_from_the_first_to_the_newest() -> None:
    for history in HISTORIES:
        line = [script.revision for script in ScriptDirectory(history.folder).walk_revisions()]
        assert tuple(reversed(line)) == history.versions
