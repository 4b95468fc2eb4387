"""The rules of `ports.Sweeps`, over the fake, SQLite and PostgreSQL."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine

from eval_jobs.queue.database_sql import open_database
from tests.fakes.sweeps import FakeSweeps
from tests.sweeping import CHECKPOINTS, NOW, answered, sweep_of
from tracker.adapters.history.sweeps_sql import SqlSweeps
from tracker.domain.sweeps.matrix import plans_of
from tracker.domain.sweeps.types import TimetablePosition, Turn, TurnState
from tracker.ports import Sweeps

Reopen = Callable[[], Sweeps]
"""Another handle on the same sweeps, as another process has it."""

MINUTE = timedelta(minutes=1)
PLANS = plans_of(sweep_of(), CHECKPOINTS, run=CHECKPOINTS[0].run_id, due_at=NOW)
DUE = Turn(sweep="nightly", due_at=NOW)


@pytest.fixture(params=["fake", "sqlite", "postgresql"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reopen]:
    if request.param == "fake":
        fake = FakeSweeps()
        yield lambda: fake
        return
    sqlite = request.param == "sqlite"
    url = f"sqlite:///{tmp_path}/tracker.db" if sqlite else request.getfixturevalue("postgres_url")
    engines: list[Engine] = []

    def open_again() -> Sweeps:
        engines.append(open_database(url))
        return SqlSweeps(engines[-1], "run")

    yield open_again
    for engine in engines:
        engine.dispose()


def test_one_holder_at_a_time_has_the_lease_until_it_ends_or_is_given_up(reopen: Reopen) -> None:
    one, other = reopen(), reopen()
    assert one.take("a", now=NOW, lease_until=NOW + MINUTE)
    assert not other.take("b", now=NOW, lease_until=NOW + MINUTE)
    assert one.take("a", now=NOW, lease_until=NOW + MINUTE)
    other.release("b")
    assert not other.take("b", now=NOW + MINUTE / 2, lease_until=NOW + 1.5 * MINUTE)
    assert other.take("b", now=NOW + MINUTE, lease_until=NOW + 2 * MINUTE)
    assert not one.take("a", now=NOW + MINUTE, lease_until=NOW + 2 * MINUTE)
    other.release("b")
    assert one.take("a", now=NOW + MINUTE, lease_until=NOW + 2 * MINUTE)


def test_a_lease_from_before_the_clock_was_set_back_does_not_last(reopen: Reopen) -> None:
    assert reopen().take("a", now=NOW + timedelta(days=9), lease_until=NOW + timedelta(days=9) + MINUTE)
    assert reopen().take("b", now=NOW, lease_until=NOW + MINUTE)


def test_until_when_a_timetable_was_followed_is_kept_for_each_sweep(reopen: Reopen) -> None:
    sweeps = reopen()
    assert sweeps.look("nightly") is None
    first, second = (TimetablePosition(until=NOW + n * MINUTE, timetable=f"{n} * * * * UTC") for n in (1, 2))
    sweeps.remember("nightly", first)
    sweeps.remember("weekly", second)
    assert (reopen().look("nightly"), reopen().look("weekly")) == (first, second)
    sweeps.remember("nightly", second)
    assert reopen().look("nightly") == second


def test_a_time_of_a_sweep_is_one_turn_whoever_notes_it(reopen: Reopen) -> None:
    assert reopen().add(DUE)
    assert not reopen().add(replace(DUE, missed=7))
    assert reopen().add(replace(DUE, sweep="weekly"))
    assert reopen().add(replace(DUE, due_at=NOW - MINUTE))
    assert [t.due_at for t in reopen().turns("nightly")] == [NOW, NOW - MINUTE]
    assert [(t.due_at, t.sweep) for t in reopen().open_turns()] == [
        (NOW - MINUTE, "nightly"),
        (NOW, "nightly"),
        (NOW, "weekly"),
    ]


def test_of_two_that_begin_a_turn_one_does(reopen: Reopen) -> None:
    one, other = reopen(), reopen()
    one.add(DUE)
    assert one.open_turns() == other.open_turns() == (DUE,)
    begun = replace(DUE, state=TurnState.RUNNING, plans=PLANS, started_at=NOW, note="a note")
    assert one.change(begun, was=TurnState.DUE)
    assert not other.change(replace(begun, plans=PLANS[:1]), was=TurnState.DUE)
    assert one.open_turns() == other.open_turns() == reopen().open_turns() == (begun,)
    ended = replace(begun, state=TurnState.DONE, ended_at=NOW)
    assert other.change(ended, was=TurnState.RUNNING)
    assert one.open_turns() == other.open_turns() == ()
    assert reopen().turns("nightly") == (ended,)
    assert not one.change(replace(DUE, sweep="nobody's"), was=TurnState.DUE)


def test_a_result_is_kept_under_its_plan_and_a_newer_one_takes_its_place(reopen: Reopen) -> None:
    first, again = answered(PLANS[0]), answered(PLANS[0], right=9, finished_at=NOW + MINUTE)
    ids = [plan.id for plan in PLANS]
    assert reopen().answered(ids) == frozenset()
    reopen().append(first)
    reopen().append(first)
    assert reopen().answered(ids) == {PLANS[0].id}
    assert reopen().results(ids) == {PLANS[0].id: first}
    reopen().append(again)
    reopen().append(answered(PLANS[1]))
    assert reopen().results(ids[:1]) == {PLANS[0].id: again}
    assert reopen().answered(ids) == set(ids[:2])


def test_thousands_of_plans_may_be_asked_for_at_once(reopen: Reopen) -> None:
    sweeps = reopen()
    sweeps.append(answered(PLANS[0]))
    ids = [*(f"{n:032x}" for n in range(40_000)), PLANS[0].id]
    assert sweeps.answered(ids) == {PLANS[0].id}
