"""Watching ends by itself only when nothing more can come."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import pytest

from eval_jobs.errors import DiskFull, TrackerError
from eval_jobs.types import BenchmarkFailure, EvalPlan, QueueState
from tests.fakes.queue import FakeQueue
from tests.records import forgetting_run
from tests.unit.tracker.app.fake_world import FakeWorld
from tracker.app.daemon import StopRule, watch
from tracker.app.pipeline import Tick


class Watching:
    """One watch over fakes, in which every pass moves the clock by a second and may do something else."""

    def __init__(self, fakes: FakeWorld, on_pass: Callable[[int], None]) -> None:
        self.fakes = fakes
        self.world = fakes.world()
        self.passes: list[Tick] = []
        self.on_pass = on_pass

    def show(self, passed: Tick, state: QueueState) -> None:
        assert state.counts is not None
        self.passes.append(passed)
        self.fakes.clock.advance(1.0)
        self.on_pass(len(self.passes))

    def until(self, training_ended: Callable[[], bool], quiet_s: float = 5.0) -> None:
        watch(
            self.world,
            clock=self.fakes.clock,
            keep_workers=lambda: None,
            stop=StopRule(training_ended=training_ended, quiet_s=quiet_s),
            show=self.show,
        )


def test_it_goes_on_while_the_training_runs_and_then_waits_for_the_last_checkpoint() -> None:
    fakes = FakeWorld()
    last = fakes.run.records[0].plan.checkpoint

    def on_pass(number: int) -> None:
        if number == 33:  # after the trainer's end, within the quiet time
            fakes.source.put(last)
        if number > 40:
            fakes.work()

    watching = Watching(fakes, on_pass)
    watching.until(lambda: len(watching.passes) >= 30)
    assert [r.step for p in watching.passes for r in p.reports] == [last.step]
    assert len(watching.passes) >= 45


def test_it_does_not_end_while_a_plan_waits() -> None:
    fakes = FakeWorld()
    fakes.source.put(fakes.run.records[0].plan.checkpoint)

    def on_pass(number: int) -> None:
        if number == 100:
            fakes.work()

    watching = Watching(fakes, on_pass)
    watching.until(lambda: True)
    assert len(watching.passes) > 100


def test_an_idle_folder_ends_after_the_quiet_time() -> None:
    watching = Watching(FakeWorld(), lambda _: None)
    watching.until(lambda: True, quiet_s=7.0)
    assert len(watching.passes) == 10


def test_a_pass_that_took_long_is_not_taken_for_quiet_time() -> None:
    """The trainer saved and ended during that pass, and its last checkpoint needs two more looks to settle."""
    fakes = FakeWorld()
    last = fakes.run.records[0].plan.checkpoint

    def on_pass(number: int) -> None:
        if number == 5:
            fakes.clock.advance(60.0)
        if number == 7:
            fakes.source.put(last)
        fakes.work()

    watching = Watching(fakes, on_pass)
    watching.until(lambda: len(watching.passes) >= 4, quiet_s=8.0)
    assert [r.step for p in watching.passes for r in p.reports] == [last.step]


def test_what_is_unfinished_when_the_training_has_ended_is_a_gap() -> None:
    fakes = FakeWorld(run=forgetting_run())
    fakes.source.unfinished = list(fakes.run.gaps)
    watching = Watching(fakes, lambda _: None)
    watching.until(lambda: True)
    assert fakes.history.gaps(fakes.run.run_id) == fakes.run.gaps
    assert watching.passes[-1].gaps == fakes.run.gaps
    assert fakes.notifier.alerts


def test_a_full_disk_is_waited_out_and_costs_no_checkpoint(caplog: pytest.LogCaptureFixture) -> None:
    fakes = FakeWorld()
    fakes.source.put(fakes.run.records[0].plan.checkpoint)
    refused: list[int] = []

    class Full(FakeQueue):
        def add(self, plan: EvalPlan, *, now: datetime) -> bool:
            if len(refused) < 5:
                refused.append(plan.checkpoint.step)
                fakes.clock.advance(1.0)
                raise DiskFull("no space is left", hint="free some")
            return super().add(plan, now=now)

    def on_pass(_: int) -> None:
        fakes.work()

    fakes.queue = Full()
    watching = Watching(fakes, on_pass)
    watching.until(lambda: True, quiet_s=3.0)
    assert len(refused) == 5
    assert [r.step for p in watching.passes for r in p.reports] == [refused[0]]
    assert len([r for r in caplog.records if "no space is left" in r.message]) == 1


def test_a_failed_evaluation_is_tried_again_at_the_next_start() -> None:
    fakes = FakeWorld(run=forgetting_run())
    failed = next(r for r in fakes.run.records if any(isinstance(o, BenchmarkFailure) for o in r.outcomes))
    fakes.source.put(failed.plan.checkpoint)
    first = Watching(fakes, lambda number: _work_at(5, number, fakes))
    first.until(lambda: True)
    assert [r.step for p in first.passes for r in p.reports] == [failed.plan.checkpoint.step]
    second = Watching(fakes, lambda number: _work_at(5, number, fakes))
    second.until(lambda: True)
    assert [r.step for p in second.passes for r in p.reports] == [failed.plan.checkpoint.step]


def _work_at(wanted: int, number: int, fakes: FakeWorld) -> None:
    if number == wanted:
        fakes.work()


def test_workers_that_cannot_live_end_the_watch() -> None:
    fakes = FakeWorld()

    def die() -> None:
        raise TrackerError("workers ended 5 times", hint="see the log")

    with pytest.raises(TrackerError, match="5 times"):
        watch(
            fakes.world(),
            clock=fakes.clock,
            keep_workers=die,
            stop=StopRule(training_ended=lambda: True, quiet_s=1.0),
            show=lambda _, __: None,
        )
