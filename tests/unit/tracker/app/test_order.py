"""Newest first: what is skipped is remembered, and verdicts are those of a run that was evaluated in order."""

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

import pytest

from eval_jobs.queue_types import Backlog
from tests.deep import sampled
from tests.fakes.history import FakeHistory
from tests.killing import Killed
from tests.records import RecordedRun, forgetting_run
from tests.unit.tracker.app.fake_world import FakeWorld
from tests.unit.tracker.app.test_tick import Fuse, cut
from tracker.app.review import interrupted_first
from tracker.app.tick import tick
from tracker.app.world import QueueOrder, WatchState
from tracker.domain.log.events import EventKind, RunEvent
from tracker.domain.records.alerts import AlertState, alert_subject_text
from tracker.domain.records.policy import Pinned
from tracker.domain.records.types import Report, VerdictWord
from tracker.domain.verdicts.out_of_order import told_by_benchmark

NEWEST = QueueOrder(max_waiting=3)


def fakes_with_all_found(order: QueueOrder = NEWEST, run: RecordedRun | None = None) -> FakeWorld:
    """Return a world in which the whole run lies on the disk at once."""
    fakes = FakeWorld(order=order, run=run or forgetting_run(trouble=False))
    for record in fakes.run.records:
        fakes.source.put(record.plan.checkpoint)
    return fakes


def steps_of(fakes: FakeWorld) -> list[int]:
    return [record.plan.checkpoint.step for record in fakes.run.records]


def in_order() -> FakeWorld:
    fakes = FakeWorld()
    for record in fakes.run.records:
        fakes.source.put(record.plan.checkpoint)
        fakes.tick()
        fakes.work()
        fakes.tick()
    return fakes


def newest_first(order: QueueOrder) -> FakeWorld:
    """Return a world in which one worker and one watcher take turns: the results arrive newest first."""
    fakes = fakes_with_all_found(order)
    fakes.tick()
    while fakes.work(at_most=1):
        fakes.clock.advance(60)
        fakes.tick()
    return fakes


def words(fakes: FakeWorld) -> dict[tuple[int, str], VerdictWord]:
    reports = fakes.history.reports(fakes.run.run_id)
    return {(report.step, v.benchmark): v.word for report in reports for v in report.verdicts}


def losses_told(fakes: FakeWorld) -> set[str]:
    return {alert_subject_text(a.subject) for a in fakes.alerting.alerts if a.state is AlertState.FIRING}


def test_too_many_waiting_checkpoints_leave_the_first_and_the_newest() -> None:
    fakes = fakes_with_all_found()
    steps = steps_of(fakes)
    passed = fakes.tick()
    assert [gap.step for gap in passed.skipped] == steps[1:-2]
    assert {gap.code for gap in passed.skipped} == {"E-CKPT-SKIPPED"}
    assert passed.skipped[0].message == "skipped in favor of 3 newer checkpoints"
    assert f"tracker evaluate {fakes.run.records[1].plan.checkpoint.uri}" in passed.skipped[0].hint
    assert fakes.history.gaps(fakes.run.run_id) == passed.skipped
    assert fakes.alerting.alerts == []
    assert fakes.work() == 3
    assert [r.step for r in fakes.tick().reports] == [steps[0], *steps[-2:]]


def test_the_pinned_baseline_of_the_run_is_never_skipped() -> None:
    fakes = fakes_with_all_found()
    steps = steps_of(fakes)
    pinned = replace(fakes.world().policy, pinned=Pinned(run_id=fakes.run.run_id, step=steps[4]))
    passed = tick(replace(fakes.world(), policy=pinned), WatchState(), fakes.clock.now())
    assert steps[4] not in [gap.step for gap in passed.skipped]
    assert steps[0] not in [gap.step for gap in passed.skipped]


def test_a_restart_skips_nothing_twice_and_brings_nothing_back() -> None:
    fakes = fakes_with_all_found()
    first = fakes.tick()
    fakes.source.start_again()
    second = fakes.tick()
    assert second.skipped == ()
    assert fakes.history.gaps(fakes.run.run_id) == first.skipped
    assert fakes.work() == 3


def test_another_backlog_evaluates_at_the_next_start_what_was_skipped() -> None:
    fakes = fakes_with_all_found()
    fakes.tick()
    fakes.work()
    fakes.source.start_again()
    fakes.order = QueueOrder(backlog=Backlog.ALL)
    fakes.tick()
    assert fakes.work() == len(fakes.run.records) - 3
    fakes.tick()
    assert [report.step for report in fakes.history.reports(fakes.run.run_id)] == steps_of(fakes)


def test_a_kill_between_any_two_calls_skips_and_remembers_the_same() -> None:
    undisturbed, every = fakes_with_all_found(), Fuse()
    wanted = tick(cut(undisturbed.world(), every), WatchState(), undisturbed.clock.now()).skipped
    for survived in sampled(every.calls):
        killed = fakes_with_all_found()
        tick_that_is_killed(killed, survived)
        assert killed.history.gaps(killed.run.run_id) == wanted, survived
        assert killed.queue.skipped() == (), survived
        assert killed.work() == 3, survived


def tick_that_is_killed(killed: FakeWorld, survived: int) -> None:
    """Kill a process after so many calls of ports, and let the next one go on."""
    with pytest.raises(Killed):
        tick(cut(killed.world(), Fuse(survived)), WatchState(), killed.clock.now())
    killed.source.start_again()
    killed.tick()


def test_results_that_arrive_newest_first_end_in_the_verdicts_and_losses_of_a_run_in_order() -> None:
    wanted, late = in_order(), newest_first(QueueOrder(backlog=Backlog.ALL))
    assert words(late) == words(wanted)
    assert losses_told(late) == losses_told(wanted) != set()
    assert len(losses_told(late)) == len(
        [a for a in late.alerting.alerts if a.state is AlertState.FIRING and not a.is_correction]
    )


def test_the_log_says_which_late_checkpoint_changed_a_verdict_and_ends_in_the_verdicts() -> None:
    late = newest_first(QueueOrder(backlog=Backlog.ALL))
    said: dict[tuple[int, str], str] = {}
    newest = 0
    for event in late.history.events(late.run.run_id):
        step = event.step or 0
        if event.kind is EventKind.EVALUATED:
            newest = step
            said |= {(step, text.split()[0]): text for text in re.split(", | and ", event.after)}
        elif event.kind is EventKind.CHANGED:
            assert said[step, event.subject].endswith(event.before)
            assert (event.reason, newest < step) == (f"step {newest} was evaluated", True)
            said[step, event.subject] = event.after
    wanted = words(late)
    assert said.keys() == wanted.keys()
    assert [key for key, word in wanted.items() if not said[key].endswith(word)] == []


def test_only_the_newest_checkpoint_may_raise_an_alarm_and_at_most_once_for_each_that_arrives() -> None:
    """What `policy.alpha` is divided by: looks that can open a loss, one for every checkpoint of the run."""
    fakes = fakes_with_all_found(QueueOrder(backlog=Backlog.ALL))
    history = fakes.history = Looked()
    world, state = fakes.world(), WatchState()
    tick(world, state, fakes.clock.now())
    while fakes.work(at_most=1):
        tick(world, state, fakes.clock.now())
    looks = [report.step for report in history.looks]
    assert {report.step for report in history.looks if report.incidents} == {steps_of(fakes)[-1]}
    assert looks[0] == steps_of(fakes)[0]  # the newest while it was alone
    assert looks.count(steps_of(fakes)[-1]) == len(fakes.run.records) - 1


class Looked(FakeHistory):
    """A history that knows every report that was ever made."""

    def __init__(self) -> None:
        super().__init__()
        self.looks: list[Report] = []

    def append_reports(self, *reports: Report, events: Iterable[RunEvent] = ()) -> None:
        self.looks += reports
        super().append_reports(*reports, events=events)


def test_a_late_checkpoint_is_not_compared_with_later_ones_as_if_they_were_its_past() -> None:
    fakes = newest_first(QueueOrder(backlog=Backlog.ALL))
    for report in fakes.history.reports(fakes.run.run_id):
        compared = [step for v in report.verdicts for c in v.comparisons for step in c.baseline_steps]
        assert all(step < report.step for step in compared)


def test_a_checkpoint_of_a_branch_that_was_left_is_not_judged_again_with_the_new_one_as_its_past() -> None:
    run = forgetting_run(trouble=False)
    fakes = FakeWorld(run=run)
    last = run.records[-1].plan.checkpoint
    early = run.records[3]
    rewound = replace(early.plan.checkpoint, digest="f" * 64, ready_at=last.ready_at + timedelta(hours=1))
    for record in fakes.run.records:
        fakes.source.put(record.plan.checkpoint)
    fakes.tick()
    fakes.work()
    fakes.tick()
    before = fakes.history.reports(run.run_id)
    fakes.clock.advance(60)
    again = replace(early, plan=replace(early.plan, id="rewound", checkpoint=rewound))
    fakes.run = replace(run, records=(*fakes.run.records, again))
    fakes.queue.add(again.plan, now=fakes.clock.now())
    fakes.work()
    fakes.tick()
    assert [r for r in fakes.history.reports(run.run_id) if r.plan_id != "rewound"] == list(before)
    fakes.source.put(rewound)
    assert fakes.tick().branches == (rewound,)


@pytest.mark.slow
def test_a_kill_while_a_late_checkpoint_changes_words_leaves_them_all_published() -> None:
    undisturbed, every = _before_the_last_of(QueueOrder(backlog=Backlog.ALL)), Fuse()
    tick(cut(undisturbed.world(), every), WatchState(), undisturbed.clock.now())
    for survived in sampled(every.calls, every=40):
        killed = _before_the_last_of(QueueOrder(backlog=Backlog.ALL))
        tick_that_is_killed(killed, survived)
        assert _published(killed) == _published(undisturbed), survived


def test_an_interrupted_review_is_finished_before_others_and_one_of_new_answers_is_not_interrupted() -> None:
    first, second = forgetting_run(trouble=False).records[:2]
    history = FakeHistory()
    history.append(second)
    assert interrupted_first((first, second), history) == [second, first]
    again = replace(second, finished_at=second.finished_at + timedelta(seconds=1))
    assert interrupted_first((first, again), history) == [first, again]


# --- private


def _before_the_last_of(order: QueueOrder) -> FakeWorld:
    """Return a world in which the results of all but one of the late checkpoints were taken over."""
    fakes = fakes_with_all_found(order, forgetting_run(trouble=False, checkpoints=8))
    fakes.tick()
    for _ in fakes.run.records[1:]:
        fakes.work(at_most=1)
        fakes.tick()
        fakes.clock.advance(1)
    fakes.work()
    return fakes


def _published(fakes: FakeWorld) -> dict[str, object]:
    return {record.plan.id: told_by_benchmark(report) for record, report in fakes.tracking.records}
