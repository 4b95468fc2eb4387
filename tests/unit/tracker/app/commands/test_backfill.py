from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from eval_jobs.errors import CheckpointIncomplete, DiskFull
from eval_jobs.queue_types import Backlog
from eval_jobs.types import Checkpoint, Generation
from tests.sweeping import CHECKPOINTS, NOW, sweep_of
from tests.unit.tracker.app.fake_world import FakeWorld
from tracker.app.commands.backfill import FilledPlace, InTurn, is_measured, notify_of_lasting, quiet
from tracker.app.tick import tick
from tracker.app.world import WatchState, World
from tracker.domain.alerts.rules import alert_of_gap
from tracker.domain.records.alerts import AlertState, alert_subject_text
from tracker.domain.records.losses import Closing
from tracker.domain.records.types import Gap
from tracker.domain.sweeps.matrix import plans_of


class Backfill:
    """The checkpoints of the recorded run, let in one by one, and what was pinned so far."""

    def __init__(self, steps: Sequence[int] = (), broken: Sequence[int] = ()) -> None:
        self.fakes = FakeWorld()
        checkpoints = {r.plan.checkpoint.step: r.plan.checkpoint for r in self.fakes.run.records}
        self.pinned: list[int] = []
        self._broken = broken
        places = [self._place(checkpoints[step]) for step in steps or sorted(checkpoints)]
        self.source = InTurn(places, self.fakes.queue)
        self.world: World = replace(self.fakes.world(), source=self.source)
        self.state = WatchState()

    def tick(self) -> tuple[int, ...]:
        passed = tick(self.world, self.state, self.fakes.clock.now())
        return tuple(checkpoint.step for checkpoint in passed.checkpoints)

    def _place(self, checkpoint: Checkpoint) -> FilledPlace:
        return FilledPlace(
            run_id=checkpoint.run_id, step=checkpoint.step, uri=checkpoint.uri, pinned=self._pin(checkpoint)
        )

    def _pin(self, checkpoint: Checkpoint) -> Callable[[], Checkpoint]:
        def pin() -> Checkpoint:
            if checkpoint.step in self._broken:
                raise CheckpointIncomplete("a shard is missing", hint="copy it again")
            self.pinned.append(checkpoint.step)
            return checkpoint

        return pin


def test_checkpoints_are_let_in_one_by_one_in_their_order() -> None:
    fill = Backfill([100, 1000, 500])
    assert fill.tick() == (100,)
    assert fill.tick() == ()
    assert fill.pinned == [100], "the next one is not even read"
    fill.fakes.work()
    assert fill.tick() == (1000,)
    assert [place.step for place in fill.source._left] == [500]


def test_a_sweep_that_waits_keeps_no_checkpoint_waiting() -> None:
    fill = Backfill([100, 200])
    plans = plans_of(sweep_of(), CHECKPOINTS, run=fill.fakes.run.run_id, due_at=NOW)
    for plan in plans:
        fill.fakes.queue.add(plan, now=fill.fakes.clock.now(), backlog=Backlog.ALL, keep=True)
    assert fill.tick() == (100,)
    assert fill.tick() == (), "a checkpoint of the run itself waits by now"


def test_what_is_still_due_does_not_count_the_plans_of_a_sweep() -> None:
    fill = Backfill([100, 200])
    run = fill.fakes.run.run_id
    for plan in plans_of(sweep_of(), CHECKPOINTS, run=run, due_at=NOW):
        fill.fakes.queue.add(plan, now=fill.fakes.clock.now(), backlog=Backlog.ALL, keep=True)
    assert fill.source.due(()) == {(run, 100), (run, 200)}
    fill.tick()
    assert fill.source.due(()) == {(run, 100), (run, 200)}, "one of them waits for its worker"
    assert fill.source.due({(run, 200)}) == {(run, 100)}


def test_it_is_not_over_while_something_is_left() -> None:
    fill = Backfill([100, 200])
    assert fill.source.is_behind()
    for _ in range(2):
        fill.tick()
        fill.fakes.work()
    assert not fill.source.is_behind()


def test_one_that_cannot_be_evaluated_is_a_gap_and_the_next_one_follows() -> None:
    fill = Backfill([100, 200], broken=[100])
    assert fill.tick() == (200,)
    gaps = fill.world.history.gaps(fill.fakes.run.run_id)
    assert [(gap.step, gap.message) for gap in gaps] == [(100, "a shard is missing")]


def test_a_store_that_refuses_a_pin_is_asked_again() -> None:
    fill = Backfill([100])
    is_full = [True]
    (place,) = fill.source._left  # the disk is full at the first try

    def pin() -> Checkpoint:
        if is_full.pop() if is_full else False:
            raise DiskFull("no space", hint="free some")
        return place.pinned()

    source = InTurn([replace(place, pinned=pin)], fill.fakes.queue)
    now = fill.fakes.clock.now()
    with pytest.raises(DiskFull):
        source.ready(now)
    assert [checkpoint.step for checkpoint in source.ready(now)] == [100]


def test_what_is_measured_with_todays_settings_is_not_asked_again() -> None:
    fill = Backfill()
    (record, *_) = fill.fakes.run.records
    checkpoint, measurement = record.plan.checkpoint, fill.world.measurement
    assert is_measured(checkpoint, [record], measurement)
    assert not is_measured(replace(checkpoint, digest="other"), [record], measurement)
    assert not is_measured(checkpoint, [], measurement)
    (suite,) = measurement.suites
    warmer = replace(measurement, suites=(replace(suite, generation=Generation(temperature=1.0)),))
    assert not is_measured(checkpoint, [record], warmer)
    assert not is_measured(checkpoint, [record], replace(measurement, serve=replace(measurement.serve, dtype="half")))
    serve = replace(measurement.serve, args=(*measurement.serve.args, "-tp", "2"))
    faster = replace(measurement, suites=(replace(suite, concurrency=64),), serve=serve)
    assert is_measured(checkpoint, [record], faster), "no score can differ"


def finished(fill: Backfill) -> Backfill:
    while fill.tick() or fill.source.is_behind() or fill.fakes.queue.state().waiting:
        fill.fakes.work()
    fill.tick()
    return fill


def test_losses_of_the_past_are_told_when_it_ends_as_they_are_then_and_once() -> None:
    fill = Backfill()
    loud = fill.world
    fill.world = quiet(loud)
    run = finished(fill).fakes.run.run_id
    assert {(e.onset_step, e.opened_step) for e in fill.fakes.history.incidents(run)} == {(700, 700), (700, 800)}
    assert not fill.fakes.alerting.alerts
    assert not fill.fakes.history.open_alerts(run)
    for _ in range(2):
        notify_of_lasting(loud, [run])
        notified = fill.fakes.alerting.alerts
        assert [(a.step, alert_subject_text(a.subject), a.state) for a in notified] == [
            (1000, "facts", AlertState.FIRING),
            (1000, "sums", AlertState.FIRING),
        ]
    assert "forgotten at step 1000" in notified[0].message
    assert notified[0].evidence is not None
    assert notified[0].evidence.lost_samples


def test_a_loss_that_was_over_within_the_past_is_not_told() -> None:
    fill = Backfill()
    loud = fill.world
    fill.world = quiet(loud)
    history, run = finished(fill).fakes.history, fill.fakes.run.run_id
    for incident in history.incidents(run):
        if incident.benchmark == "facts":
            history.append_incident(replace(incident, closed_step=900, closed_by=Closing.RECOVERED))
    notify_of_lasting(loud, [run])
    assert [alert_subject_text(alert.subject) for alert in fill.fakes.alerting.alerts] == ["sums"]


def test_what_people_were_told_before_ends_while_the_past_is_filled() -> None:
    fill = Backfill()
    gap = Gap(run_id=fill.fakes.run.run_id, step=200, source_uri="x", code="E", message="gone", hint="", seen_at=NOW)
    fill.world.dispatcher.dispatch([alert_of_gap(gap)])
    fill.world = quiet(fill.world)
    finished(fill)
    assert [(a.step, a.state) for a in fill.fakes.alerting.alerts] == [
        (200, AlertState.FIRING),
        (200, AlertState.RESOLVED),
    ]
