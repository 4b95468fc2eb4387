"""A bug over one record, checkpoint or part of the loop sets that one aside, and the rest continues."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from sqlalchemy import select, update

from eval_jobs.queue.database_sql import open_database
from eval_jobs.queue_types import Backlog
from eval_jobs.types import Checkpoint, EvalPlan, EvalRecord
from tests.fakes.curves import FakeCurves
from tests.fakes.history import FakeHistory
from tests.fakes.queue import FakeQueue
from tests.fakes.source import FakeSource
from tests.records import forgetting_run
from tests.unit.tracker.app.fake_world import FakeWorld
from tracker.adapters.database.tables import RECORDS
from tracker.adapters.history.store_sql import SqlHistory
from tracker.app.tick import tick
from tracker.app.world import Tick, WatchState, World
from tracker.domain.log.events import RunEvent
from tracker.domain.records.alerts import AlertKind, AlertState
from tracker.domain.records.types import CurvePoint, Gap, Report

GAP = forgetting_run().gaps[0]
RUN = forgetting_run().run_id


def test_a_bug_at_one_record_is_logged_once_and_the_others_are_judged(caplog: pytest.LogCaptureFixture) -> None:
    history = BugAt()
    fakes = FakeWorld(history=history)
    bad = history.bad = fakes.run.records[1].plan.id
    world, state = fakes.world(), WatchState()
    for record in fakes.run.records[:4]:
        fakes.source.put(record.plan.checkpoint)
    tick(world, state, fakes.clock.now())
    fakes.work()
    for _ in range(3):
        tick(world, state, fakes.clock.now())
    judged = {report.plan_id for report in fakes.history.reports(fakes.run.run_id)}
    assert judged == {record.plan.id for record in fakes.run.records[:4]} - {bad}
    step = fakes.run.records[1].plan.checkpoint.step
    words = f"cannot compute the verdicts of step {step} of {fakes.run.run_id}: ZeroDivisionError: a bug"
    # The alert about it is logged too, for information.
    assert [words in one.message for one in caplog.records if one.levelno >= logging.ERROR] == [True]
    history.bad = ""
    fakes.tick()  # the next start, with the bug mended
    assert bad in {report.plan_id for report in fakes.history.reports(fakes.run.run_id)}
    assert fakes.queue.finished() == ()


class BugAt(FakeHistory):
    """A history with a bug that one report finds."""

    bad = ""

    def append_reports(self, *reports: Report, events: Iterable[RunEvent] = ()) -> None:
        if self.bad in {report.plan_id for report in reports}:
            raise ZeroDivisionError("a bug")
        super().append_reports(*reports, events=events)


def test_a_bug_at_one_checkpoint_or_step_of_the_loop_sets_it_aside_with_one_traceback_and_one_alert(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fakes = FakeWorld(queue=QueueWithBug(), source=SourceWithBug())
    for record in fakes.run.records[:3]:
        fakes.source.put(record.plan.checkpoint)
    world, state = replace(fakes.world(), curves=CurvesWithBug()), WatchState()
    passes = [tick(world, state, fakes.clock.now()) for _ in range(3)]
    assert [one.step for one in fakes.queue.state().waiting] == [200, 300]
    assert [one.set_aside for one in passes[1:]] == [3, 3]
    assert caplog.text.count("Traceback") == 3
    assert "cannot queue the evaluation of step 100 of tiny-forgetting: MemoryError" in caplog.text
    assert "cannot publish the curves of step 200 of tiny-forgetting: RecursionError" in caplog.text
    (alert,) = fakes.alerting.alerts
    assert (alert.kind, alert.state) == (AlertKind.BUG, AlertState.FIRING)
    assert "set aside after an error; cannot queue the evaluation of step 100" in alert.message
    fakes.source = FakeSource()
    fakes.tick()  # the next start, with the bugs mended
    assert [alert.state for alert in fakes.alerting.alerts] == [AlertState.FIRING, AlertState.RESOLVED]


def test_a_damaged_stored_record_is_left_out_alone_and_the_run_is_judged_with_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fakes = FakeWorld()
    engine = open_database(f"sqlite:///{tmp_path}/tracker.db")
    world = replace(fakes.world(), history=SqlHistory(engine, tmp_path / "samples"))
    first, second, third = fakes.run.records[:3]
    _evaluate(fakes, world, [first, second])
    with engine.begin() as connection:
        where = RECORDS.c.plan_id == second.plan.id
        sound = connection.scalar(select(RECORDS.c.record).where(where))
        connection.execute(update(RECORDS).where(where).values(record=b"not what was written"))
    anew = replace(world, history=SqlHistory(engine, tmp_path / "samples"))  # another process
    passed = _evaluate(fakes, anew, [third])
    assert ([one.step for one in passed.reports], passed.set_aside) == ([third.plan.checkpoint.step], 1)
    assert [one.plan for one in anew.history.records(RUN)] == [first.plan, third.plan]
    assert caplog.text.count("a stored record is damaged and is left out") == 1
    place = f"(history_records, plan_id {second.plan.id}, run_id {RUN}, step {second.plan.checkpoint.step})"
    alerts = [alert for alert in fakes.alerting.alerts if alert.kind is AlertKind.BUG]
    assert [alert.message for alert in alerts] == [
        f"1 item set aside after an error; a stored record is damaged {place}"
    ]
    with engine.begin() as connection:
        connection.execute(update(RECORDS).where(where).values(record=sound))
    assert len(anew.history.records(RUN)) == 3
    assert tick(anew, WatchState(), fakes.clock.now()).set_aside == 0
    engine.dispose()


def _evaluate(fakes: FakeWorld, world: World, records: Sequence[EvalRecord]) -> Tick:
    """Return the pass that judges these."""
    state = WatchState()
    for record in records:
        fakes.source.put(record.plan.checkpoint)
    tick(world, state, fakes.clock.now())
    fakes.work()
    return tick(world, state, fakes.clock.now())


class QueueWithBug(FakeQueue):
    def add(self, plan: EvalPlan, *, now: datetime, backlog: Backlog = Backlog.ALL, keep: bool = False) -> bool:
        if plan.checkpoint.step == 100:
            raise MemoryError
        return super().add(plan, now=now, backlog=backlog, keep=keep)


class CurvesWithBug(FakeCurves):
    def read(self, checkpoint: Checkpoint) -> tuple[CurvePoint, ...]:
        if checkpoint.step == 200:
            raise RecursionError
        return super().read(checkpoint)


class SourceWithBug(FakeSource):
    def gaps(self) -> tuple[Gap, ...]:
        raise ValueError("a bug")
