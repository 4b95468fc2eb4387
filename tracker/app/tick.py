"""One step of the main loop: checkpoints become plans, records become verdicts and alerts. Start reading here.

Data flows one way: checkpoint -> plan -> (a worker runs eval_jobs.run.run_plan) -> record -> report -> alert, or a
plan for the samples that screening left out.
"""

from collections.abc import Iterable
from datetime import datetime
from functools import partial

from eval_jobs.types import Checkpoint, EvalRecord
from tracker.app.gaps import remember_gaps, skip_surplus
from tracker.app.plans import first_plans, is_baseline
from tracker.app.review import Reviewed, new_branches, review
from tracker.app.steps import calibrating, sweeps
from tracker.app.steps.collect import collect
from tracker.app.world import Tick, WatchState, World
from tracker.domain.alerts.stalls import rejected_results, set_aside
from tracker.domain.records.alerts import Alert, AlertState
from tracker.domain.records.calibration import Calibration
from tracker.domain.sweeps.types import Turn


def tick(world: World, state: WatchState, now: datetime) -> Tick:
    """Do one pass. It may be killed at any line and run again."""
    attempt = state.aside.attempt
    checkpoints = attempt("ready", "cannot look for checkpoints", partial(world.source.ready, now), ())
    state.found.extend(checkpoints)
    state.unreported.extend(checkpoints)
    state.seen.update((checkpoint.run_id, checkpoint.step) for checkpoint in checkpoints)
    state.demand_lead(now)
    plan_found(world, state, now)
    skipped = attempt("skip", "cannot skip checkpoints", partial(skip_surplus, world, state, now), ())
    gaps = attempt("gaps", "cannot store gaps", partial(remember_gaps, world, state), ())
    reviewed, calibrations, swept = attempt(
        "review", "cannot review results", partial(review_finished, world, state, now), ((), (), 0)
    )
    turns: tuple[Turn, ...] = ()
    if world.sweeps is not None:
        turns = attempt("sweeps", "cannot follow sweeps", partial(sweeps.follow, world.sweeps, now), ())
    if turns:
        world.wake_workers()
    rejected = world.tracking.set_aside()
    report_lasting(world, state, (rejected_results(world.keeping.run, rejected, now), _bugs(world, state, now)))
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
        unsent=attempt("flush", "cannot send results", world.tracking.flush, 0),
        rejected=len(rejected),
        set_aside=len(state.aside.found),
        pending_alerts=attempt("alerts", "cannot send alerts", world.dispatcher.alerting.flush, 0),
    )
    state.unreported.clear()
    return passed


def plan_found(world: World, state: WatchState, now: datetime) -> None:
    """Queue the plans of what was found and publish its curves; what fails stays found, behind the others."""
    for checkpoint in tuple(state.found):
        if state.is_held(state.found[-1]):
            return  # evaluations would fail
        at = f"step {checkpoint.step} of {checkpoint.run_id}"
        plan = partial(_plan, world, state, checkpoint, now)
        if state.aside.attempt(f"plan {checkpoint.uri}", f"cannot queue the evaluation of {at}", plan, otherwise=False):
            publish = partial(_publish_training, world, checkpoint)
            state.aside.attempt(f"curves {checkpoint.uri}", f"cannot publish the curves of {at}", publish, None)
            state.found.remove(checkpoint)


def _plan(world: World, state: WatchState, checkpoint: Checkpoint, now: datetime) -> bool:
    first = state.first.setdefault(checkpoint.run_id, checkpoint)
    keep = checkpoint == first or is_baseline(checkpoint, world.policy)
    for plan in first_plans(checkpoint, world, state, keep=keep):
        # plan.id is a content hash: adding twice is a no-op
        world.queue.add(plan, now=now, backlog=world.order.backlog, keep=keep)
    world.wake_workers()  # before the curves: long ones and a slow tracking store take time
    return True


def _publish_training(world: World, checkpoint: Checkpoint) -> None:
    world.tracking.publish_curves(checkpoint, world.curves.read(checkpoint))
    world.tracking.publish_facts(checkpoint, world.curves.facts(checkpoint))  # the curves find the run


def _bugs(world: World, state: WatchState, now: datetime) -> Alert:
    return set_aside(world.keeping.run, tuple(state.aside.found.values()), now)


def report_lasting(world: World, state: WatchState, alerts: Iterable[Alert]) -> None:
    """Send the alerts whose cause begins or ends."""
    if state.firing is None:
        state.firing = {alert.kind for alert in world.dispatcher.alerts.open_alerts(world.keeping.run)}
    for alert in alerts:
        if (alert.kind in state.firing) != (alert.state is AlertState.FIRING):
            world.dispatcher.dispatch([alert])
            state.firing ^= {alert.kind}


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
    for record in world.queue.finished():  # written by workers on any machine
        checkpoint, take = record.plan.checkpoint, partial(_take, world, record, context, now)
        what = f"cannot compute the verdicts of step {checkpoint.step} of {checkpoint.run_id}"
        taken = state.aside.attempt(record.plan.id, what, take, None)
        if isinstance(taken, Reviewed):
            reviewed.append(taken)
        elif isinstance(taken, Calibration):
            calibrations.append(taken)
        elif taken is not None:
            swept += 1
    state.seen.update((one.report.run_id, one.report.step) for one in reviewed)
    if reviewed:
        world.wake_workers()
        state.aside.attempt("collect", "cannot delete what is not kept", partial(collect, world.keeping), ())
    return tuple(reviewed), tuple(calibrations), swept


def _take(
    world: World, record: EvalRecord, context: calibrating.CalibrationContext, now: datetime
) -> Reviewed | Calibration | EvalRecord | None:
    """Return what a record led to; None: a sweep's, which is left for another process."""
    if record.plan.calibration:
        return calibrating.take_calibration(record, context)
    if record.plan.sweep is None:
        reviewed = review(world, record, now)
        world.queue.acknowledge(record.plan.id)  # after review: a crash in between repeats it harmlessly
        return reviewed
    if world.sweeps is None:
        return None  # another process has the sweeps
    return sweeps.take_sweep_result(record, world.sweeps)  # sweeps have no verdicts and no alerts
