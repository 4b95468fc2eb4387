"""A run whose training went back, through the real database: what the review keeps, and what people are shown."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from sqlalchemy import create_engine

from dashboards.data.run import newest_records
from eval_jobs.types import EvalRecord
from tests.unit.tracker.app.fake_world import FakeWorld
from tests.unit.tracker.domain.judging import NOW
from tests.unit.tracker.domain.verdicts.test_rewind import BAD, GOOD, again, first_try, tried
from tracker.adapters.history.store_sql import SqlHistory
from tracker.api import references
from tracker.app.review import review
from tracker.app.world import World
from tracker.cli.tables.render import history_table
from tracker.domain.overview.run import overview
from tracker.domain.records.alerts import AlertState
from tracker.domain.records.losses import Closing


@pytest.fixture
def history(tmp_path: Path) -> Iterator[SqlHistory]:
    engine = create_engine(f"sqlite:///{tmp_path / 'tracker.db'}")
    yield SqlHistory(engine, tmp_path / "samples")
    engine.dispose()


@pytest.fixture
def world(history: SqlHistory) -> World:
    return FakeWorld(history=history).world()  # type: ignore[arg-type]


def reviewed(world: World, *records: EvalRecord) -> None:
    for record in records:
        review(world, record, NOW)


def shown(history: SqlHistory) -> str:
    console = Console(width=160, record=True, file=None, force_terminal=False)
    with console.capture() as capture:
        console.print(history_table(history.outlines("run"), last=0))
    return capture.get()


def test_both_branches_are_kept_and_shown_apart(world: World, history: SqlHistory) -> None:
    reviewed(world, *first_try(), *again([1200, 1300], GOOD))
    assert len(history.records("run")) == len(history.reports("run")) == 18
    assert overview(history.outlines("run")).steps == tuple(range(100, 1400, 100))
    text = shown(history)
    left = (
        "discarded when training restarted from a step before 1200: 1200:a-1200, 1300:a-1300, 1400:a-1400, 1500:a-1500"
    )
    assert left in text
    assert [r.plan.checkpoint.digest for r in newest_records(history.records("run"))][-2:] == ["b-1200", "b-1300"]


def test_the_newest_is_what_a_step_means_and_the_older_is_reachable(world: World, history: SqlHistory) -> None:
    reviewed(world, *first_try(), *again([1200, 1300], GOOD))

    def digest(name: str) -> str:
        checkpoint = references._checkpoint(history, name, "run", history.outlines).checkpoint
        assert checkpoint is not None
        return checkpoint.digest

    assert digest("1300") == "b-1300"
    assert digest("latest") == "b-1300"
    assert digest("run@1300:a-13") == "a-1300"
    assert digest("1500") == "a-1500"


def test_losses_and_alerts_of_the_branch_that_was_left_end_in_the_database(world: World, history: SqlHistory) -> None:
    reviewed(world, *first_try())
    assert [e.closed_by for e in history.incidents("run")] == [None]
    assert [a.state for a in history.open_alerts("run")] == [AlertState.FIRING]
    reviewed(world, *again([1200], GOOD))
    assert [e.closed_by for e in history.incidents("run")] == [Closing.SUPERSEDED]
    assert history.open_alerts("run") == ()
    reviewed(world, *tried("b", [1300], BAD, minute=110))
    assert [e.closed_by for e in history.incidents("run")] == [None]
    assert len(history.open_alerts("run")) == 1
