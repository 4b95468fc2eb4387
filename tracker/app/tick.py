"""One step of the main loop: checkpoints become plans, records become verdicts and alerts. Start reading here.

Data flows one way: checkpoint -> plan -> (a worker runs eval_jobs.run.run_plan) -> record -> report -> alert, or a
plan for the samples that screening left out.
"""

from datetime import datetime

from tracker.app.gaps import remember_gaps, skip_surplus
from tracker.app.plans import first_plans, is_baseline
from tracker.app.review import Reviewed, new_branches, review
from tracker.app.steps import calibrating, sweeps
from tracker.app.steps.collect import collect
from tracker.app.world import Tick, WatchState, World
from tracker.domain.alerts.stalls import rejected_results
from tracker.domain.records.alerts import AlertKind
from tracker.domain.records.calibration import Calibration

SENDING_S = 0.5
"""Longest time that a pass waits for MLflow, which needs less while it is healthy."""


def tick(world: World, state: WatchState, now: datetime) -> Tick:
    """Do one pass. It may be killed at any line and run again."""
    checkpoints = world.source.ready(now)
    state.found.extend(checkpoints)
    state.unreported.extend(checkpoints)
    state.seen.update((checkpoint.run_id, checkpoint.step) for checkpoint in checkpoints)
    state.demand_lead(now)
    while state.found and not state.is_held(state.found[-1]):
        checkpoint = state.found[0]
        first = state.first.setdefault(checkpoint.run_id, checkpoint)
        keep = checkpoint == first or is_baseline(checkpoint, world.policy)
        for plan in first_plans(checkpoint, world, state, keep=keep):
            # plan.id is a content hash: adding twice is a no-op
            world.queue.add(plan, now=now, backlog=world.order.backlog, keep=keep)
        world.wake_workers()  # before the curves: long ones and a slow tracking store take time
        world.tracking.publish_curves(checkpoint, world.curves.read(checkpoint))
        world.tracking.publish_facts(checkpoint, world.curves.facts(checkpoint))  # the curves find the run
        del state.found[0]
    skipped = skip_surplus(world, state, now)
    gaps = remember_gaps(world, state)
    reviewed, calibrations, swept = review_finished(world, state, now)
    turns = () if world.sweeps is None else sweeps.follow(world.sweeps, now)
    if turns:
        world.wake_workers()
    passed = Tick(
        checkpoints=tuple(state.unreported),
        branches=tuple(new_branches(world.history, state.unreported)),
        gaps=gaps,
        skipped=skipped,
        reports=tuple(one.report for one in reviewed),
        changes=tuple(change for one in reviewed for change in one.changes),
        calibrations=calibrations,
        turns=turns,
        swept=swept,
        unsent=world.tracking.flush(SENDING_S),
        rejected=report_rejected(world, state, now),
        pending_alerts=world.dispatcher.alerting.flush(),
    )
    state.unreported.clear()
    return passed


def report_rejected(world: World, state: WatchState, now: datetime) -> int:
    """Send an alert when MLflow begins or ends to reject results; return how many it rejects."""
    rejected, run = world.tracking.set_aside(), world.keeping.run
    if state.has_rejected is None:
        firing = world.dispatcher.alerts.open_alerts(run)
        state.has_rejected = any(alert.kind is AlertKind.UNSENT for alert in firing)
    if state.has_rejected != bool(rejected):
        world.dispatcher.dispatch([rejected_results(run, rejected, now)])
        state.has_rejected = bool(rejected)
    return len(rejected)


def review_finished(
    world: World, state: WatchState, now: datetime
) -> tuple[tuple[Reviewed, ...], tuple[Calibration, ...], int]:
    """Review what workers have finished; return reviews, calibrations, and the number of sweep results."""
    reviewed: list[Reviewed] = []
    calibrations: list[Calibration] = []
    swept = 0
    context = calibrating.CalibrationContext(
        queue=world.queue,
        calibrations=world.history,
        policy=world.policy,
        dispatcher=world.dispatcher,
    )
    for record in state.boundary.unbroken(world.queue.finished()):  # written by workers on any machine
        state.demand_lead(now)  # reviews take long, and two leaders would both judge
        with state.boundary.around(record):
            if record.plan.calibration:
                calibrations.append(calibrating.take_calibration(record, context))
            elif record.plan.sweep is None:
                reviewed.append(review(world, record, now))
                world.queue.acknowledge(record.plan.id)  # after review: a crash in between repeats it harmlessly
            elif world.sweeps is not None:  # sweeps have no verdicts and no alerts
                sweeps.take_sweep_result(record, world.sweeps)
                swept += 1
    state.seen.update((one.report.run_id, one.report.step) for one in reviewed)
    if reviewed:
        world.wake_workers()
        collect(world.keeping)
    return tuple(reviewed), tuple(calibrations), swept
