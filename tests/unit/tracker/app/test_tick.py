"""The loop's one step: nothing lost, nothing doubled, wherever it is cut."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from eval_jobs.queue.rules import lease_end
from tests.deep import sampled
from tests.fakes.history import FakeHistory
from tests.fakes.lead import FakeLead
from tests.killing import Killed
from tests.records import forgetting_run
from tests.unit.tracker.app.fake_world import FakeWorld
from tracker.app.gaps import remember_gaps
from tracker.app.leading import LeadLost, demand_lead
from tracker.app.plans import plans_for
from tracker.app.review import review
from tracker.app.steps.alerting import AlertDispatcher
from tracker.app.tick import tick
from tracker.app.world import WatchState, World
from tracker.domain.log.events import RunEvent
from tracker.domain.records.alerts import Alert, AlertKind, AlertState, alert_subject_text
from tracker.domain.records.policy import Pinned
from tracker.domain.records.tracking import RejectedItem
from tracker.domain.records.types import Gap, Report, VerdictWord

GAP = forgetting_run().gaps[0]


def run_through(fakes: FakeWorld, fuse: Fuse | None = None) -> None:
    """Let every checkpoint of the recorded run appear, be evaluated and be judged."""
    for record in fakes.run.records:
        fakes.source.put(record.plan.checkpoint)
        judge_what_is_there(fakes, fuse or Fuse())


def judge_what_is_there(fakes: FakeWorld, fuse: Fuse) -> None:
    tick(cut(fakes.world(), fuse), WatchState(), fakes.clock.now())
    fakes.work()
    tick(cut(fakes.world(), fuse), WatchState(), fakes.clock.now())


def test_every_checkpoint_is_judged_and_published_once() -> None:
    fakes = FakeWorld()
    run_through(fakes)
    steps = [record.plan.checkpoint.step for record in fakes.run.records]
    assert [report.step for report in fakes.history.reports(fakes.run.run_id)] == steps
    assert [record.plan.checkpoint.step for record, _ in fakes.tracking.records] == steps
    assert len(set(fakes.tracking.points)) == len(fakes.tracking.points) > 0
    assert [facts.params for facts in fakes.tracking.facts] == [{"seed": "1"}]


def test_workers_are_woken_when_their_plan_is_there_and_before_anything_is_published() -> None:
    fakes = FakeWorld()
    woken: list[tuple[int, int]] = []
    world = replace(
        fakes.world(),
        wake_workers=lambda: woken.append((len(fakes.queue.state().waiting), len(fakes.tracking.points))),
    )
    state = WatchState()
    tick(world, state, fakes.clock.now())
    assert woken == []
    fakes.source.put(fakes.run.records[0].plan.checkpoint)
    tick(world, state, fakes.clock.now())
    assert woken == [(1, 0)]
    assert fakes.tracking.points


def test_a_pass_that_fails_anywhere_leaves_what_it_found_to_be_reported_by_the_next() -> None:
    for limit in range(100):
        fakes, state, fuse = FakeWorld(), WatchState(), Fuse(limit)
        checkpoint = fakes.run.records[0].plan.checkpoint
        fakes.source.put(checkpoint)
        world = replace(cut(fakes.world(), fuse), source=fakes.source)
        try:
            assert tick(world, state, fakes.clock.now()).checkpoints == (checkpoint,)
            break
        except Killed:
            fuse.left = -1
        assert tick(world, state, fakes.clock.now()).checkpoints == (checkpoint,)
        assert tick(world, state, fakes.clock.now()).checkpoints == ()
    assert limit > 3


def test_nothing_is_planned_while_this_process_does_not_lead_and_what_was_found_is_planned_later() -> None:
    fakes, other = FakeWorld(), FakeLead("/out")
    checkpoint, world = fakes.run.records[0].plan.checkpoint, fakes.world()
    fakes.source.put(checkpoint)
    other.take(fakes.clock.now())
    state = WatchState(demand_lead=partial(demand_lead, other.another("/out")))
    with pytest.raises(LeadLost):
        tick(world, state, fakes.clock.now())
    assert fakes.queue.state().waiting == ()
    other.release()
    assert tick(world, state, fakes.clock.now()).checkpoints == (checkpoint,)
    assert len(fakes.queue.state().waiting) == 1


def test_a_lead_that_is_lost_during_a_pass_ends_it_before_the_next_verdict() -> None:
    mine = FakeLead("/out")
    fakes = FakeWorld(history=LeadTakenAtReport(mine))
    world, state = fakes.world(), WatchState(demand_lead=partial(demand_lead, mine))
    for record in fakes.run.records[:2]:
        fakes.source.put(record.plan.checkpoint)
    tick(world, state, fakes.clock.now())
    fakes.work()
    with pytest.raises(LeadLost):
        tick(world, state, fakes.clock.now())
    assert len(fakes.history.reports(fakes.run.run_id)) == 1


class LeadTakenAtReport(FakeHistory):
    """A history during whose first report another process takes the lead."""

    def __init__(self, lead: FakeLead) -> None:
        super().__init__()
        self._lead = lead

    def append_reports(self, *reports: Report, events: Iterable[RunEvent] = ()) -> None:
        self._lead.release()
        self._lead.another("/out").take(reports[0].created_at)
        super().append_reports(*reports, events=events)


def test_training_that_goes_back_is_a_new_branch() -> None:
    fakes = FakeWorld()
    run_through(fakes)
    (old, newest) = (fakes.run.records[n].plan.checkpoint for n in (3, -1))
    again = replace(old, digest="f" * 64, ready_at=newest.ready_at + timedelta(hours=1))
    fakes.source.put(again)
    assert fakes.tick().branches == (again,)
    assert fakes.tick().branches == ()


def test_the_loss_is_found_and_told_once() -> None:
    fakes = FakeWorld()
    run_through(fakes)
    last = {v.benchmark: v.word for v in fakes.history.reports(fakes.run.run_id)[-1].verdicts}
    assert last["facts"] is VerdictWord.FORGOTTEN
    assert last["sums"] is VerdictWord.FORGOTTEN
    firing = [a.fingerprint for a in fakes.alerting.alerts if a.state is AlertState.FIRING]
    assert len(firing) == len(set(firing)) > 0


def test_a_second_pass_over_the_same_world_changes_nothing() -> None:
    fakes = FakeWorld()
    run_through(fakes)
    told, sent = list(fakes.alerting.alerts), list(fakes.tracking.records)
    passed = fakes.tick()
    assert (passed.checkpoints, passed.gaps, passed.reports, passed.unsent) == ((), (), (), 0)
    assert (fakes.alerting.alerts, fakes.tracking.records) == (told, sent)


def test_a_gap_is_told_once() -> None:
    fakes = FakeWorld(run=forgetting_run())
    for gap in fakes.run.gaps:
        fakes.source.put_gap(gap)
    for _ in range(3):
        fakes.tick()
    assert len(fakes.alerting.alerts) == len(fakes.run.gaps) > 0
    assert fakes.history.gaps(fakes.run.run_id) == fakes.run.gaps


def test_a_gap_that_was_remembered_by_a_killed_process_is_told_by_the_next_one() -> None:
    fakes = FakeWorld(run=forgetting_run())
    for gap in fakes.run.gaps:
        fakes.source.put_gap(gap)
        fakes.history.append_gap(gap)
    passes = [fakes.tick() for _ in range(3)]
    assert len(fakes.alerting.alerts) == len(fakes.run.gaps) > 0
    assert [passed.gaps for passed in passes] == [(), (), ()]


def test_a_checkpoint_that_is_evaluated_after_all_ends_the_alert_of_its_gap() -> None:
    fakes = FakeWorld()
    record, now = fakes.run.records[2], fakes.clock.now()
    gap = replace(GAP, run_id=fakes.run.run_id, step=record.plan.checkpoint.step, seen_at=record.started_at)
    fakes.source.put_gap(gap)
    tick(fakes.world(), WatchState(), now)
    review(fakes.world(), record, now)
    told = [alert.state for alert in fakes.alerting.alerts if alert_subject_text(alert.subject) == "checkpoint"]
    assert told == [AlertState.FIRING, AlertState.RESOLVED]
    assert not [
        alert for alert in fakes.history.open_alerts(gap.run_id) if alert_subject_text(alert.subject) == "checkpoint"
    ]
    fakes.source.put_gap(replace(gap, seen_at=now))  # as the next process finds it
    tick(fakes.world(), WatchState(), now)
    assert len([alert for alert in fakes.alerting.alerts if alert_subject_text(alert.subject) == "checkpoint"]) == 2


def test_a_pass_asks_the_history_nothing_about_gaps_that_are_told() -> None:
    fakes = FakeWorld(run=forgetting_run())
    for gap in fakes.run.gaps:
        fakes.source.put_gap(gap)
    world, state = fakes.world(), WatchState()
    tick(world, state, fakes.clock.now())
    asked = replace(world, history=Unasked())
    assert remember_gaps(asked, state) == ()


class Unasked(FakeHistory):
    """A history that must not be asked."""

    def append_gap(self, gap: Gap) -> bool:
        raise AssertionError(gap)

    def open_alerts(self, run_id: str) -> tuple[Alert, ...]:
        raise AssertionError(run_id)


def test_while_the_store_is_down_results_wait_and_arrive_later() -> None:
    fakes = FakeWorld()
    fakes.tracking.is_down = True
    run_through(fakes)
    assert fakes.tick().unsent > 0
    fakes.tracking.is_down = False
    assert fakes.tick().unsent == 0
    assert len(fakes.tracking.records) == len(fakes.run.records)


def test_only_the_first_suite_carries_the_latency_load() -> None:
    fakes = FakeWorld()
    measurement = fakes.world().measurement
    two = replace(measurement, suites=(*measurement.suites, replace(measurement.suites[0], name="other")))
    checkpoint = fakes.run.records[0].plan.checkpoint
    plans = plans_for(checkpoint, two, first=checkpoint)
    assert [len(plan.loads) > 0 for plan in plans] == [True, False]
    assert len({plan.id for plan in plans}) == 2


def test_only_the_latency_load_has_a_reference_and_nothing_is_its_own() -> None:
    fakes = FakeWorld()
    first, later = (record.plan.checkpoint for record in fakes.run.records[:2])
    alone = fakes.world().measurement
    two = replace(alone, suites=(*alone.suites, replace(alone.suites[0], name="other")), reference="first")
    assert [plan.reference for plan in plans_for(later, two, first=first)] == [first, None]
    assert [plan.reference for plan in plans_for(first, two, first=first)] == [None, None]
    fixed = replace(alone, reference=later)
    assert [plan.reference for plan in plans_for(first, fixed, first=first)] == [later]
    assert [plan.reference for plan in plans_for(later, fixed, first=first)] == [None]


def test_every_later_checkpoint_is_compared_with_the_first_that_was_seen() -> None:
    fakes = FakeWorld()
    world = replace(fakes.world(), measurement=replace(fakes.world().measurement, reference="first"))
    state = WatchState()
    checkpoints = [record.plan.checkpoint for record in fakes.run.records]
    for checkpoint in (checkpoints[1], checkpoints[2], checkpoints[0]):
        fakes.source.put(checkpoint)
        tick(world, state, fakes.clock.now())
    now = fakes.clock.now()
    claims = [fakes.queue.claim(worker="w", now=now, lease_until=lease_end(now)) for _ in range(3)]
    references = {claim.plan.checkpoint.step: claim.plan.reference for claim in claims if claim is not None}
    first = checkpoints[1]
    assert references == {first.step: None, checkpoints[2].step: first, checkpoints[0].step: first}


class Fuse:
    """Lets the first `limit` port calls through; the next one dies before it does anything. Names the calls."""

    def __init__(self, limit: int = -1) -> None:
        self.left = limit
        self.calls: list[str] = []

    def around(self, port: Any) -> Any:
        fuse = self

        class Around:
            def __getattr__(self, name: str) -> Callable[..., Any]:
                method = getattr(port, name)

                def call(*args: Any, **kwargs: Any) -> Any:
                    if fuse.left == 0:
                        raise Killed
                    fuse.left -= 1
                    fuse.calls.append(name)
                    return method(*args, **kwargs)

                return call

        return Around()


def cut(world: World, fuse: Fuse) -> World:
    history, alerting = fuse.around(world.history), fuse.around(world.dispatcher.alerting)
    return replace(
        world,
        queue=fuse.around(world.queue),
        history=history,
        tracking=fuse.around(world.tracking),
        dispatcher=AlertDispatcher(alerts=history, records=history, alerting=alerting),
    )


@pytest.mark.slow
def test_a_kill_between_any_two_calls_loses_and_doubles_nothing() -> None:
    run = forgetting_run(trouble=False, checkpoints=8)  # the loss is told at the seventh
    undisturbed, every = FakeWorld(run=run), Fuse()
    run_through(undisturbed, every)
    assert undisturbed.alerting.alerts
    for survived in sampled(every.calls, every=40):
        killed, fuse = FakeWorld(run=run), Fuse(survived)
        for record in killed.run.records:
            killed.source.put(record.plan.checkpoint)
            try:
                judge_what_is_there(killed, fuse)
            except Killed:
                fuse.left = -1  # the next process is not killed
                killed.source.start_again()
                judge_what_is_there(killed, fuse)
        assert killed.history.reports(run.run_id) == undisturbed.history.reports(run.run_id), survived
        assert killed.tracking.records == undisturbed.tracking.records, survived
        assert set(killed.alerting.alerts) == set(undisturbed.alerting.alerts), survived
        assert not killed.queue.state().waiting, survived


def test_a_pinned_baseline_without_results_is_said(caplog: pytest.LogCaptureFixture) -> None:
    fakes = FakeWorld()
    record = fakes.run.records[0]
    for run_id, step, is_said in (("nobody", 7, True), (fakes.run.run_id, 7, True), (fakes.run.run_id, 100, False)):
        caplog.clear()
        policy = replace(fakes.world().policy, pinned=Pinned(run_id=run_id, step=step))
        review(replace(fakes.world(), policy=policy), record, fakes.clock.now())
        assert (f"not compared with policy.baseline {run_id}@{step}" in caplog.text) is is_said


def test_results_that_mlflow_rejects_raise_one_alert_until_none_is_rejected() -> None:
    fakes, state = FakeWorld(), WatchState()
    fakes.tracking.rejected = [RejectedItem(run_id="r", reason="duplicate key value")]
    assert [fakes.tick(state).rejected, fakes.tick(state).rejected] == [1, 1]
    (alert,) = fakes.alerting.alerts
    assert (alert.kind, alert.state) == (AlertKind.UNSENT, AlertState.FIRING)
    assert alert.message == "1 result not in MLflow, which rejected each five times; r: duplicate key value"
    fakes.tick(WatchState())
    assert len(fakes.alerting.alerts) == 1, "a new process knows that it fires"
    fakes.tracking.rejected = []
    fakes.tick(WatchState())
    assert [alert.state for alert in fakes.alerting.alerts] == [AlertState.FIRING, AlertState.RESOLVED]
