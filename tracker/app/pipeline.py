"""The main loop's one step: checkpoints become plans, records become verdicts and alerts. READ THIS FIRST.

Data flows one way: checkpoint -> plan -> (a worker runs eval_jobs.run.run_plan) -> record -> report -> alert, or a
plan for the samples that were left out at first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from eval_jobs.errors import CheckpointSkipped
from eval_jobs.identity import make_plan
from eval_jobs.ports import Queue
from eval_jobs.queue_types import Backlog
from eval_jobs.types import Checkpoint, EvalPlan, EvalRecord, EvalResult, ProbeLoad, ServeSpec, Suite
from tracker.app.steps.alerting import Crier
from tracker.app.steps.collect import Keeping, collect
from tracker.app.steps.conclude import Desk, take_over
from tracker.app.steps.error_boundary import ErrorBoundary
from tracker.app.steps.screening import Pace, pace_of, paced, plans_of_rest, whole_record
from tracker.app.steps.sweeps import SweepDesk, follow
from tracker.app.steps.sweeps import take_over as take_over_sweep
from tracker.domain.alerts.rules import alert_of_gap, alerts_for, loss_alerts
from tracker.domain.best.champions import champions_of
from tracker.domain.checkpoints.gaps import unsettled
from tracker.domain.overview.costs import with_cost_so_far
from tracker.domain.records.alerts import Patience
from tracker.domain.records.branches import branches_of
from tracker.domain.records.calibration import Calibration
from tracker.domain.records.types import Gap, Policy, Report
from tracker.domain.scores.run_scores import RunScores, series_key
from tracker.domain.sweeps.types import Turn
from tracker.domain.verdicts.judge import judge
from tracker.domain.verdicts.late import judged_again, overtaken_by, words_of
from tracker.domain.verdicts.rewind import left_behind, scores_of_newest
from tracker.domain.verdicts.screening import Screening
from tracker.domain.verdicts.trials import Memory
from tracker.ports import CheckpointSource, CurveReader, History, Tracking

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What is measured at every checkpoint, and how it is served."""

    suites: tuple[Suite, ...]
    serve: ServeSpec
    loads: tuple[ProbeLoad, ...]
    reference: Checkpoint | Literal["first"] | None = None
    """What latency is compared with; `first`: the first checkpoint of each run."""
    screening: Screening | None = None
    """None: every checkpoint is asked everything."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """Which of a run's waiting checkpoints is next, and how many may wait."""

    backlog: Backlog = Backlog.NEWEST
    max_waiting: int = 20
    """Checkpoints; beyond it the oldest are skipped, where the backlog allows it."""


@dataclass(frozen=True, kw_only=True)
class World:
    """Everything outside the pure core that the use cases work with."""

    source: CheckpointSource
    curves: CurveReader
    queue: Queue
    history: History
    tracking: Tracking
    crier: Crier
    measurement: Measurement
    policy: Policy
    keeping: Keeping
    order: Order = Order()
    patience: Patience = field(default_factory=Patience)
    sweeps: SweepDesk | None = None
    """None: whoever is here does not take care of sweeps; what they ask stays for a watcher."""
    wake_workers: Callable[[], None] = lambda: None
    """Called when there may be something to do for those of this machine."""


@dataclass(kw_only=True)
class WatchState:
    """What this process has seen so far. The next start begins with an empty one, and comes to the same results."""

    found: list[Checkpoint] = field(default_factory=list)
    """Not yet planned: kept over a pass that failed, because a source tells each checkpoint once."""
    first: dict[str, Checkpoint] = field(default_factory=dict)
    """The first checkpoint of each run that was planned; a restarted source tells the lowest step first again."""
    paces: dict[str, Pace] = field(default_factory=dict)
    """How far each run is, where a part is asked first."""
    notified: set[Gap] = field(default_factory=set)
    """Gaps that are in the history and in the alerts: a source names its gaps at every pass."""
    boundary: ErrorBoundary = field(default_factory=ErrorBoundary)


@dataclass(frozen=True, kw_only=True)
class Tick:
    """What one pass found and concluded, for display."""

    checkpoints: tuple[Checkpoint, ...]
    gaps: tuple[Gap, ...]
    skipped: tuple[Gap, ...]
    """Checkpoints that were not evaluated because too many newer ones were waiting."""
    reports: tuple[Report, ...]
    calibrations: tuple[Calibration, ...] = ()
    turns: tuple[Turn, ...] = ()
    """Turns of sweeps that began, ended or were skipped."""
    swept: int = 0
    """Evaluations of sweeps that were taken over."""
    unsent: int
    """Results that still wait for MLflow."""
    untold: int = 0
    """Alerts that still wait for a channel."""


def tick(world: World, state: WatchState, now: datetime) -> Tick:
    """Do one pass. Safe to kill at any line and run again."""
    checkpoints = world.source.ready(now)
    state.found.extend(checkpoints)
    while state.found:
        checkpoint = state.found[0]
        first = state.first.setdefault(checkpoint.run_id, checkpoint)
        keep = checkpoint == first or _is_pinned(checkpoint, world.policy)
        for plan in first_plans(checkpoint, world, state, keep=keep):
            # plan.id is a content hash: adding twice is a no-op
            world.queue.add(plan, now=now, backlog=world.order.backlog, keep=keep)
        world.wake_workers()  # at once: long curves take a while, and a tracking store may be waited for
        world.tracking.publish_curves(checkpoint, world.curves.read(checkpoint))
        del state.found[0]
    skipped = skip_surplus(world, state, now)
    gaps = remember_gaps(world, state)
    reports, calibrations, swept = review_finished(world, state, now)
    turns = () if world.sweeps is None else follow(world.sweeps, now)
    if turns:
        world.wake_workers()
    return Tick(
        checkpoints=checkpoints,
        gaps=gaps,
        skipped=skipped,
        reports=reports,
        calibrations=calibrations,
        turns=turns,
        swept=swept,
        unsent=world.tracking.flush(),
        untold=world.crier.alerting.flush(),
    )


def review_finished(
    world: World, state: WatchState, now: datetime
) -> tuple[tuple[Report, ...], tuple[Calibration, ...], int]:
    """Take over what workers have finished since; return what it showed, and how many were of sweeps."""
    reports: list[Report] = []
    calibrations: list[Calibration] = []
    swept = 0
    desk = Desk(queue=world.queue, history=world.history, policy=world.policy, tell=world.crier.tell)
    for record in state.boundary.unbroken(world.queue.finished()):  # written by workers, wherever they run
        with state.boundary.around(record):
            if record.plan.calibration:
                calibrations.append(take_over(record, desk))
            elif record.plan.sweep is None:
                reports.append(review(world, record, now))
                world.queue.acknowledge(record.plan.id)  # after review: a crash in between repeats it, harmlessly
            elif world.sweeps is not None:  # nothing of it is judged, and nobody is alerted
                take_over_sweep(record, world.sweeps)
                swept += 1
    if reports:
        world.wake_workers()
        collect(world.keeping)
    return tuple(reports), tuple(calibrations), swept


def remember_gaps(world: World, state: WatchState) -> tuple[Gap, ...]:
    """Remember what the source could not take, and tell people; return what is new."""
    found = tuple(gap for gap in world.source.gaps() if gap not in state.notified)
    new: list[Gap] = []
    for run_id in sorted({gap.run_id for gap in found}):
        of_run = (gap for gap in found if gap.run_id == run_id)
        told = {alert.fingerprint for alert in world.history.open_alerts(run_id)}
        for gap in unsettled(of_run, world.history.gaps(run_id), world.history.records(run_id)):
            if world.history.append_gap(gap):
                new.append(gap)
            alert = alert_of_gap(gap)
            if alert.fingerprint not in told:  # not only for new gaps: a crash may have come before the alert
                world.crier.tell([alert])
    state.notified.update(found)
    return tuple(new)


def skip_surplus(world: World, state: WatchState, now: datetime) -> tuple[Gap, ...]:
    """Skip the oldest of too many waiting checkpoints, and remember each as a gap; return those that are new.

    Nobody is alerted: it is the order of the day while the trainer is faster than the workers.
    """
    for run_id in state.first if world.order.backlog is Backlog.NEWEST else ():
        world.queue.skip(run_id, max_waiting=world.order.max_waiting)
    gaps = []
    for plan in world.queue.skipped():
        gap = gap_of_skipped(plan.checkpoint, world.order, now)
        if world.history.append_gap(gap):
            gaps.append(gap)
        world.queue.leave_out(plan.id)  # after the history: a crash in between repeats it, harmlessly
    return tuple(gaps)


def gap_of_skipped(checkpoint: Checkpoint, order: Order, now: datetime) -> Gap:
    """Return what is remembered of a checkpoint that was skipped. Pure."""
    error = CheckpointSkipped(
        f"skipped: {order.max_waiting} newer checkpoints were waiting",
        hint=f'`tracker run {checkpoint.uri}` evaluates it, watch.backlog = "all" every one; more workers skip fewer',
    )
    return Gap(
        run_id=checkpoint.run_id,
        step=checkpoint.step,
        source_uri=checkpoint.source_uri,
        code=error.code,
        message=error.message,
        hint=error.hint,
        seen_at=now,
    )


def plans_for(checkpoint: Checkpoint, measurement: Measurement, *, first: Checkpoint) -> tuple[EvalPlan, ...]:
    """Return what to measure at `checkpoint` of a run that began with `first`. Pure.

    The first suite carries the latency loads and their reference; nothing is its own reference.
    """
    reference = first if measurement.reference == "first" else measurement.reference
    if reference is not None and reference.digest == checkpoint.digest:
        reference = None
    latency, scores_only = (measurement.loads, reference), ((), None)
    return tuple(
        make_plan(checkpoint, suite, measurement.serve, *(latency if index == 0 else scores_only))
        for index, suite in enumerate(measurement.suites)
    )


def first_plans(checkpoint: Checkpoint, world: World, state: WatchState, *, keep: bool) -> tuple[EvalPlan, ...]:
    """Return what is asked at `checkpoint` before anything is known of it: everything, or a part of each benchmark."""
    run_id, screening = checkpoint.run_id, world.measurement.screening
    plans = plans_for(checkpoint, world.measurement, first=state.first[run_id])
    if screening is None:
        return plans
    if run_id not in state.paces:
        state.paces[run_id] = pace_of(world.history, run_id)
    return paced(plans, screening, world.queue, state.paces[run_id], keep=keep)


def review(world: World, record: EvalRecord, now: datetime) -> Report:
    """Remember a record, judge it against the run so far, publish it and tell people.

    Where a part was asked and looks suspicious, the others are asked next, of this checkpoint before all others.
    """
    record = whole_record(record, world.history)
    report, memory = conclude(world, record, now)
    ask_rest(world, record, report, memory, now)
    world.tracking.publish(with_cost_so_far(record, memory.records), report, left_behind(record, memory))
    crown(world, record, memory)
    later = overtaken_by(record, memory.records)
    open_alerts = world.history.open_alerts(record.plan.checkpoint.run_id)
    world.crier.tell(alerts_for(report, open_alerts, later), record)
    if later:
        look_again(world, later, memory, now)
    return report


def conclude(world: World, record: EvalRecord, now: datetime) -> tuple[Report, Memory]:
    """Remember a record and what is concluded from it; return that, and what was known of the run."""
    run_id = record.plan.checkpoint.run_id
    world.history.append(record)
    memory = recall(world.history, run_id, world.policy)
    return judge_and_remember(world, record, world.history.scores(run_id), memory, now), memory


def judge_and_remember(world: World, record: EvalRecord, scores: RunScores, memory: Memory, now: datetime) -> Report:
    """Judge a record that is in the history, by what is known of its run, and remember what is concluded."""
    _warn_of_baseline(record, memory, world.policy)
    report = judge(record, scores, memory, world.policy, now=now)
    for episode in report.episodes:  # keyed by what opened it: a crash in between repeats it, harmlessly
        world.history.append_episode(episode)
    world.history.append_report(report)
    return report


def crown(world: World, record: EvalRecord, memory: Memory) -> None:
    """Let the aliases of the run name its best checkpoints, as they are known now."""
    checkpoint = record.plan.checkpoint
    branches = branches_of(one.plan.checkpoint for one in (*memory.records, record))
    scores = scores_of_newest(world.history.scores(checkpoint.run_id), branches)
    world.tracking.publish_champions(checkpoint, champions_of(scores, min_coverage=world.policy.min_coverage))


def ask_rest(world: World, record: EvalRecord, report: Report, memory: Memory, now: datetime) -> None:
    """Ask what screens have left out where that would tell more; asked before: nothing happens."""
    if world.measurement.screening is None:
        return
    for rest in plans_of_rest(record, report, memory.records, world.keeping.pins.given_up()):
        world.queue.add(rest, now=now, backlog=world.order.backlog, keep=True)


def look_again(world: World, later: Sequence[EvalRecord], memory: Memory, now: datetime) -> None:
    """Judge checkpoints again whose past has grown; a loss that the newest one shows now is told."""
    run_id = later[0].plan.checkpoint.run_id
    scores = world.history.scores(run_id)
    for record in later:
        before = world.history.report(record.plan.id)
        if before is None:
            continue  # its own review comes
        report = judged_again(before, judge(record, scores, memory, world.policy, now=now))
        for episode in report.episodes:
            world.history.append_episode(episode)
        ask_rest(world, record, report, memory, now)
        if words_of(report) != words_of(before) and (full := world.history.record(record.plan.id)) is not None:
            world.tracking.publish(with_cost_so_far(full, memory.records), report, left_behind(record, memory))
        world.history.append_report(report)  # after MLflow: a crash in between must leave the words different
        world.crier.tell(loss_alerts(report, world.history.open_alerts(run_id)))


def recall(history: History, run_id: str, policy: Policy) -> Memory:
    """Return what is known of a run beside its scores."""
    return Memory(
        episodes=history.episodes(run_id),
        acceptances=history.acceptances(run_id),
        pinned=None if policy.pinned is None else history.scores(policy.pinned.run_id),
        records=history.records(run_id),
        calibrations=history.calibrations(),
    )


# --- private


def _is_pinned(checkpoint: Checkpoint, policy: Policy) -> bool:
    """Say whether the policy compares every checkpoint with this one."""
    return policy.pinned is not None and (policy.pinned.run_id, policy.pinned.step) == (
        checkpoint.run_id,
        checkpoint.step,
    )


def _warn_of_baseline(record: EvalRecord, memory: Memory, policy: Policy) -> None:
    """Say which results have no counterpart at the pinned checkpoint, so that nobody relies on a comparison."""
    pinned = policy.pinned
    if pinned is None or memory.pinned is None:
        return
    keys = {o.benchmark: series_key(record.plan, o) for o in record.outcomes if isinstance(o, EvalResult)}
    known = {key for key, series in memory.pinned.series.items() if series.row_of(pinned.step) is not None}
    if lacking := [name for name, key in keys.items() if key not in known]:
        log.warning(
            "%s: not compared with policy.baseline %s@%d, which has no result measured alike: "
            "evaluate it with these settings, or change policy.baseline",
            ", ".join(lacking),
            pinned.run_id,
            pinned.step,
        )
