"""Watching ends by itself only when nothing more can come."""

from collections.abc import Callable
from datetime import datetime
from typing import Self

import pytest

from eval_jobs.errors import DiskFull, StoreError, StoreUnavailable, TrackerError
from eval_jobs.queue_types import QueueState
from eval_jobs.types import BenchmarkFailure, EvalPlan
from tests.fakes.queue import FakeQueue
from tests.fakes.tracking import FakeTracking
from tests.records import forgetting_run
from tests.unit.tracker.app.fake_world import FakeWorld
from tracker.app.daemon import LAST_PASSES, StopRule, watch
from tracker.app.world import Tick, WatchState


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

    @property
    def judged(self) -> list[int]:
        """Steps that were judged, in order."""
        return [report.step for passed in self.passes for report in passed.reports]

    def until(self, training_ended: Callable[[], bool], quiet_s: float = 5.0) -> Self:
        watch(
            self.world,
            WatchState(),
            clock=self.fakes.clock,
            keep_workers=lambda: None,
            stop=StopRule(training_ended=training_ended, quiet_s=quiet_s),
            show=self.show,
        )
        return self


@pytest.mark.parametrize("works_from", [34, 38, 60])
def test_it_goes_on_while_the_training_runs_and_then_waits_for_the_last_checkpoint(works_from: int) -> None:
    fakes = FakeWorld()
    last = fakes.run.records[0].plan.checkpoint

    def on_pass(number: int) -> None:
        if number == 33:  # after the trainer's end, within the quiet time
            fakes.source.put(last)
        if number >= works_from:
            fakes.work()

    watching = Watching(fakes, on_pass)
    watching.until(lambda: len(watching.passes) >= 30)
    assert watching.judged == [last.step]
    # Five seconds after it came, in which another one might have come; nothing is waited for twice.
    assert max(34 + 5, works_from + 1) <= len(watching.passes) <= max(34 + 5, works_from) + 4


def test_it_does_not_end_while_the_storage_of_the_checkpoints_is_away() -> None:
    fakes = FakeWorld()
    fakes.source.behind = True

    def on_pass(number: int) -> None:
        fakes.source.behind = number < 50

    watching = Watching(fakes, on_pass).until(lambda: True)
    assert 50 < len(watching.passes) < 60


def test_it_does_not_end_while_a_plan_waits() -> None:
    fakes = FakeWorld()
    fakes.source.put(fakes.run.records[0].plan.checkpoint)

    def on_pass(number: int) -> None:
        if number == 100:
            fakes.work()

    watching = Watching(fakes, on_pass).until(lambda: True)
    assert len(watching.passes) > 100


class LateHands(FakeTracking):
    """While results are sent, after the pass has looked for finished plans, a worker finishes its last one."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__()
        self._work = work
        self.flushes = 0

    def flush(self, wait_s: float = 0.0) -> int:
        self.flushes += 1
        if self.flushes == 40:  # long after the quiet time
            self._work()
        return super().flush(wait_s)


def test_a_plan_that_is_finished_behind_the_back_of_a_pass_is_judged_before_watching_ends() -> None:
    fakes = FakeWorld()
    fakes.tracking = LateHands(fakes.work)
    fakes.source.put(fakes.run.records[0].plan.checkpoint)
    watching = Watching(fakes, lambda _: None).until(lambda: True)
    reported = next(number for number, passed in enumerate(watching.passes) if passed.reports)
    assert reported == 40
    # What it shows may ask for more: another pass looks for that, and only then come the last ones.
    assert len(watching.passes) > reported + 2


def test_an_idle_folder_ends_after_the_quiet_time() -> None:
    watching = Watching(FakeWorld(), lambda _: None).until(lambda: True, quiet_s=7.0)
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
    assert watching.judged == [last.step]


def test_what_is_unfinished_when_the_training_has_ended_is_a_gap() -> None:
    fakes = FakeWorld(run=forgetting_run())
    fakes.source.unfinished = list(fakes.run.gaps)
    watching = Watching(fakes, lambda _: None).until(lambda: True)
    assert fakes.history.gaps(fakes.run.run_id) == fakes.run.gaps
    assert watching.passes[-1].gaps == fakes.run.gaps
    assert fakes.alerting.alerts


@pytest.mark.parametrize(("back_after", "unsent"), [(20, 0), (10_000, 4)])
def test_what_the_tracking_store_has_not_taken_is_waited_for_but_not_for_ever(back_after: int, unsent: int) -> None:
    fakes = FakeWorld()
    fakes.tracking.is_down = True
    fakes.source.put(fakes.run.records[0].plan.checkpoint)

    def on_pass(number: int) -> None:
        fakes.work()
        fakes.tracking.is_down = number < back_after

    watching = Watching(fakes, on_pass).until(lambda: True)
    assert watching.passes[-1].unsent == unsent
    assert len(watching.passes) < 20 + LAST_PASSES


def test_a_full_disk_is_waited_out_and_costs_no_checkpoint(caplog: pytest.LogCaptureFixture) -> None:
    fakes = FakeWorld()
    fakes.source.put(fakes.run.records[0].plan.checkpoint)
    refused: list[int] = []

    class Full(FakeQueue):
        def add(self, plan: EvalPlan, **arguments: object) -> bool:
            if len(refused) < 5:
                refused.append(plan.checkpoint.step)
                fakes.clock.advance(1.0)
                raise DiskFull("no space is left", hint="free some")
            return super().add(plan, **arguments)  # type: ignore[arg-type]

    def on_pass(_: int) -> None:
        fakes.work()

    fakes.queue = Full()
    watching = Watching(fakes, on_pass).until(lambda: True, quiet_s=3.0)
    assert len(refused) == 5
    assert watching.judged == [refused[0]]
    assert len([r for r in caplog.records if "no space is left" in r.message]) == 1


class Faulty(FakeQueue):
    """Its database refuses the calls that are left in `refusals`, by method."""

    def __init__(self, **refusals: list[StoreError]) -> None:
        super().__init__()
        self.refusals = refusals

    def revive(self, renewed: Callable[[EvalPlan], EvalPlan | None]) -> int:
        self._refuse("revive")
        return super().revive(renewed)

    def skipped(self) -> tuple[EvalPlan, ...]:
        self._refuse("skipped")
        return super().skipped()

    def state(self) -> QueueState:
        self._refuse("state")
        return super().state()

    def _refuse(self, method: str) -> None:
        if self.refusals.get(method):
            raise self.refusals[method].pop()


def away(number: int) -> StoreError:
    return StoreUnavailable(f"no answer from port {number}", hint="wait")


@pytest.mark.parametrize("method", ["revive", "skipped", "state"])
def test_a_database_that_is_away_is_said_once_whatever_its_words_and_once_when_it_is_back(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    fakes = FakeWorld()
    fakes.queue = Faulty(**{method: [*map(away, range(4))]})
    fakes.source.put(fakes.run.records[0].plan.checkpoint)
    watching = Watching(fakes, lambda _: _work_at(1, 1, fakes)).until(lambda: True, quiet_s=3.0)
    assert watching.judged == [fakes.run.records[0].plan.checkpoint.step]
    said = [r.message for r in caplog.records]
    assert len([m for m in said if "no answer" in m]) == 1
    assert said.count("database and files usable again") == 1


def test_what_a_store_refuses_in_the_last_pass_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    fakes = FakeWorld(run=forgetting_run())
    queue = Faulty()
    fakes.queue = queue
    fakes.source.unfinished = list(fakes.run.gaps)
    give_up = fakes.source.give_up

    def and_fail(now: datetime) -> None:
        give_up(now)
        queue.refusals = {"skipped": [away(1), away(2)]}

    fakes.source.give_up = and_fail  # type: ignore[method-assign]
    Watching(fakes, lambda _: None).until(lambda: True)
    assert fakes.history.gaps(fakes.run.run_id) == fakes.run.gaps
    assert "database and files usable again" in caplog.text


def test_a_database_that_stays_away_after_the_end_does_not_keep_the_process_for_ever() -> None:
    fakes = FakeWorld(run=forgetting_run())
    queue = Faulty()
    fakes.queue = queue
    give_up = fakes.source.give_up

    def and_fail(now: datetime) -> None:
        give_up(now)
        queue.refusals = {"skipped": [*map(away, range(3 * LAST_PASSES))]}

    fakes.source.give_up = and_fail  # type: ignore[method-assign]
    Watching(fakes, lambda _: None).until(lambda: True)
    assert len(queue.refusals["skipped"]) == 2 * LAST_PASSES


@pytest.mark.parametrize("hours", [-5, 5])
def test_a_clock_that_is_set_neither_ends_the_watch_early_nor_keeps_it_for_hours(hours: int) -> None:
    fakes = FakeWorld()
    last = fakes.run.records[0].plan.checkpoint

    def on_pass(number: int) -> None:
        if number == 4:
            fakes.clock.advance(3600.0 * hours)
        if number == 8:
            fakes.source.put(last)
        fakes.work()

    watching = Watching(fakes, on_pass).until(lambda: True, quiet_s=12.0)
    assert watching.judged == [last.step]
    assert len(watching.passes) < 40


def test_a_failed_evaluation_is_tried_again_at_the_next_start() -> None:
    fakes = FakeWorld(run=forgetting_run())
    failed = next(r for r in fakes.run.records if any(isinstance(o, BenchmarkFailure) for o in r.outcomes))
    fakes.source.put(failed.plan.checkpoint)
    first = Watching(fakes, lambda number: _work_at(5, number, fakes)).until(lambda: True)
    assert first.judged == [failed.plan.checkpoint.step]
    second = Watching(fakes, lambda number: _work_at(5, number, fakes)).until(lambda: True)
    assert second.judged == [failed.plan.checkpoint.step]


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
            WatchState(),
            clock=fakes.clock,
            keep_workers=die,
            stop=StopRule(training_ended=lambda: True, quiet_s=1.0),
            show=lambda _, __: None,
        )
