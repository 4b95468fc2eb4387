"""The rules of locks and of `ports.Lead`, over SQLite and PostgreSQL: one process holds each, until it ends."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from eval_jobs.errors import ConfigError, StoreError
from eval_jobs.host.plan_lock import is_locked, locked_file
from eval_jobs.queue.database_sql import open_database, transaction
from tests.fakes.lead import FakeLead
from tracker.adapters.database.lead_sql import SqlLead
from tracker.adapters.database.lock_sql import named_lock
from tracker.ports import Lead

NOW = datetime(2026, 3, 14, 12, 0, tzinfo=UTC)
LATER = datetime(2026, 3, 14, 13, 0, tzinfo=UTC)
PATIENCE_S = 120.0


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


@pytest.fixture
def other_engine(url: str) -> Iterator[Engine]:
    engine = open_database(url)
    yield engine
    engine.dispose()


@pytest.fixture(params=["fake", "sqlite", "postgresql"])
def leads(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Lead, Lead]]:
    """Two processes' leads of one run."""
    if request.param == "fake":
        first = FakeLead(output_dir="/out")
        yield first, first.another(output_dir="/out")
        return
    url = f"sqlite:///{tmp_path}/t.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    engines = [open_database(url), open_database(url)]
    one, other = (SqlLead(engine, "run", "/out") for engine in engines)
    yield one, other
    one.release()
    other.release()
    for engine in engines:
        engine.dispose()


def hold_for_ever(url: str, said: Connection) -> None:
    lock = named_lock(open_database(url), "a")
    said.send(lock.take())
    threading.Event().wait()


def lead_when_told(url: str, orders: Connection) -> None:
    """Take the lead at each order, and say whether this process leads."""
    lead = SqlLead(open_database(url), "run", "/out")
    while orders.recv() == "take":
        orders.send(lead.take(NOW))


def cut_all_sessions(engine: Engine) -> None:
    """Cut every connection of the other engines, as a restart of the server or a lost network does."""
    with transaction(engine) as connection:
        everybody_else = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        connection.execute(text(everybody_else + " AND pid <> pg_backend_pid()"))


def test_a_lock_is_held_by_one_until_it_is_released(engine: Engine, other_engine: Engine) -> None:
    one, other = named_lock(engine, "a"), named_lock(other_engine, "a")
    assert one.take()
    assert one.take()
    assert not other.take()
    assert (one.is_held(), other.is_held()) == (True, False)
    one.release()
    one.release()
    assert not one.is_held()
    assert other.take()
    other.release()


def test_locks_of_other_names_do_not_disturb_one_another(engine: Engine, other_engine: Engine) -> None:
    one, other = named_lock(engine, "lead a"), named_lock(other_engine, "lead b")
    assert one.take()
    assert other.take()
    one.release()
    other.release()


def test_a_lock_ends_with_the_process_that_is_killed(url: str, engine: Engine) -> None:
    hears, says = multiprocessing.Pipe(duplex=False)
    holder = multiprocessing.get_context("spawn").Process(target=hold_for_ever, args=(url, says))
    holder.start()
    says.close()  # so that a holder that cannot start is an error here
    assert hears.recv() is True
    lock = named_lock(engine, "a")
    assert not lock.take()
    os.kill(holder.pid or 0, signal.SIGKILL)
    holder.join()
    waited = threading.Event()
    assert any(lock.take() or waited.wait(0.05) for _ in range(int(PATIENCE_S / 0.05)))
    lock.release()


def test_a_session_that_was_cut_is_noticed_by_its_holder(postgres_url: str) -> None:
    engines = [open_database(postgres_url) for _ in range(3)]
    one, other = named_lock(engines[0], "a"), named_lock(engines[1], "a")
    assert one.take()
    cut_all_sessions(engines[2])
    assert not one.is_held()
    assert other.take()
    assert not one.take()
    other.release()
    assert one.take()
    one.release()
    for engine in engines:
        engine.dispose()


def test_a_lock_whose_file_was_deleted_is_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    url = f"sqlite:///{tmp_path}/tracker.db"
    one, other = (named_lock(open_database(url), "a") for _ in range(2))
    assert one.take()
    (file,) = tmp_path.glob("*.lock")
    file.unlink()
    assert other.take()
    assert not one.take()
    assert not one.is_held()
    assert caplog.messages == [f"the lock file {file} was deleted: requesting the lock again; keep these files"]
    other.release()
    assert one.take()
    one.release()


def test_deleting_the_lock_file_of_a_leader_makes_no_second_leader(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tracker.db"
    orders, replies = multiprocessing.Pipe()
    leader = multiprocessing.get_context("spawn").Process(target=lead_when_told, args=(url, replies))
    leader.start()
    orders.send("take")
    assert orders.recv() is True
    standby = SqlLead(open_database(url), "run", "/out")
    for file in tmp_path.glob("*.lock"):
        file.unlink()
    assert [standby.take(LATER) for _ in range(2)] == [False, False]
    orders.send("take")  # its next pass
    assert orders.recv() is True
    assert not standby.take(LATER)
    for file in tmp_path.glob("*.lock"):
        file.unlink()
    leader.kill()
    leader.join()
    assert standby.take(LATER)
    standby.release()


def test_a_lock_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot write the lock"):
        named_lock(open_database(f"sqlite:///{tmp_path}/missing/t.db"), "a").take()


def test_the_leader_identifies_itself(leads: tuple[Lead, Lead]) -> None:
    one, other = leads
    assert one.leader() is None
    assert one.take(NOW)
    assert not other.take(LATER)
    leader = other.leader()
    assert leader is not None
    assert (leader.pid, leader.since, leader.output_dir) == (os.getpid(), NOW, "/out")


def test_asking_whether_a_process_leads_takes_and_writes_nothing(leads: tuple[Lead, Lead]) -> None:
    one, other = leads
    assert (one.is_led(), other.is_led()) == (False, False)
    assert one.take(NOW)
    leader = other.leader()
    assert (one.is_led(), other.is_led()) == (True, True)
    assert (one.take(LATER), other.leader()) == (True, leader)
    one.release()
    assert (one.is_led(), other.is_led(), other.leader()) == (False, False, leader)


def test_a_question_at_the_same_moment_does_not_keep_the_lock_from_anyone(tmp_path: Path) -> None:
    path, asking = tmp_path / "lock", threading.Event()
    path.touch()

    def ask() -> None:
        while not asking.is_set():
            is_locked(path)

    asker = threading.Thread(target=ask)
    asker.start()
    for _ in range(100):
        file = locked_file(path)
        assert file is not None
        file.close()
    asking.set()
    asker.join()


def test_confirming_the_lead_changes_nothing(leads: tuple[Lead, Lead]) -> None:
    one, other = leads
    assert one.take(NOW)
    assert one.take(LATER)
    leader = other.leader()
    assert leader is not None
    assert leader.since == NOW


def test_the_next_one_leads_when_the_lead_is_released(leads: tuple[Lead, Lead]) -> None:
    one, other = leads
    assert one.take(NOW)
    one.release()
    one.release()
    assert other.take(LATER)
    assert not one.take(LATER)
    leader = one.leader()
    assert leader is not None
    assert leader.since == LATER


def test_a_disconnected_leader_leads_again_only_without_another_leader(postgres_url: str) -> None:
    engines = [open_database(postgres_url) for _ in range(3)]
    one, other = (SqlLead(engine, "run", "/out") for engine in engines[:2])
    assert one.take(NOW)
    cut_all_sessions(engines[2])
    assert one.take(LATER)
    cut_all_sessions(engines[2])
    assert other.take(LATER)
    assert not one.take(LATER)
    one.release()
    other.release()
    for engine in engines:
        engine.dispose()


def test_leads_of_different_runs_do_not_disturb_one_another(engine: Engine, other_engine: Engine) -> None:
    one, other = SqlLead(engine, "a", "/a"), SqlLead(other_engine, "b", "/b")
    assert one.take(NOW)
    assert other.take(NOW)
    one.release()
    other.release()


@pytest.mark.parametrize(("first", "second"), [("a", "a/b"), ("a/b", "a")])
def test_a_run_whose_name_looks_like_a_sub_folder_of_another_is_refused(
    engine: Engine, first: str, second: str
) -> None:
    one, other, unlike = SqlLead(engine, first, "/a"), SqlLead(engine, second, "/b"), SqlLead(engine, "ab", "/c")
    assert one.take(NOW)
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"runs .* and .* cannot share a database"):
            other.take(NOW)
    assert unlike.take(NOW)
    one.release()
    unlike.release()


def test_the_folder_of_a_lead_has_one_spelling(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    lead = SqlLead(engine, "run", f"{tmp_path}/link/../link/")
    assert lead.take(NOW)
    leader = lead.leader()
    assert leader is not None
    assert leader.output_dir == str((tmp_path / "real").resolve())
    lead.release()
