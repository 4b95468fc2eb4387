"""One step of the main loop: checkpoints become plans, records become verdicts and alerts. Start reading here.

Data flows one way: checkpoint -> plan -> (a worker runs eval_jobs.run.run_plan) -> record -> report -> alert, or a
plan for the samples that screening left out.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from tracker.app.gaps import remember_gaps, skip_surplus
from tracker.app.planning import ask_again, plan_found
from tracker.app.review import Reviewed, interrupted_first, new_branches, review
from tracker.app.steps import calibrating, sweeps
from tracker.app.steps.collect import collect
from tracker.app.world import Tick, WatchState, World
from tracker.domain.alerts.stalls import rejected_results, set_aside
from tracker.domain.records.alerts import Alert, AlertState
from tracker.domain.records.calibration import Calibration

_APART = timedelta(microseconds=1)
SENDING_S = 0.5
"""Longest time that a pass waits for MLflow, which needs less while it is healthy."""


def tick(world: World, state: WatchState, now: datetime) -> Tick:
    """Do one pass. It may be killed at any line and run again."""
    find(world, state, now)
    return advance(world, state, now)


def find(world: World, state: WatchState, now: datetime) -> bool:
    """Look for checkpoints, which are pinned without the store; return whether the disk has anything new."""
    checkpoints = state.aside.attempt("ready", "cannot look for checkpoints", lambda: world.source.ready(now), ())
    state.found.extend(checkpoints)
    state.unreported.extend(checkpoints)
    state.seen.update((checkpoint.run_id, checkpoint.step) for checkpoint in checkpoints)
    return bool(state.found or state.unreported) or not state.reported.gaps.issuperset(world.source.gaps())


def advance(world: World, state: WatchState, now: datetime) -> Tick:
    """Queue what was found, review what was evaluated, and send what waits. It may be killed at any line, too."""
    attempt = state.aside.attempt
    state.demand_lead(now)
    attempt("log", "cannot store the log of the run", lambda: world.log_found(state.unreported, now), None)
    plan_found(world, state, now)
    skipped = attempt("skip", "cannot skip checkpoints", lambda: skip_surplus(world, state, now), ())
    gaps = attempt("gaps", "cannot store gaps", lambda: remember_gaps(world, state), ())
    reviewed, calibrations, swept = attempt(
        "review", "cannot review results", lambda: review_finished(world, state, now), ((), (), 0)
    )
    attempt("reasks", "cannot queue what other settings lack", lambda: ask_again(world, state, now), None)
    turns = attempt("sweeps", "cannot follow sweeps", lambda: sweeps.follow(world.sweeps, now), ())
    if turns:
        world.wake_workers()
    rejected = world.tracking.set_aside()
    aside = (*state.aside.found.values(), *world.history.damaged())
    bugs = set_aside(world.keeping.run, aside, now)
    report_lasting(world, state, (rejected_results(world.keeping.run, rejected, now), bugs))
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
        unsent=attempt("flush", "cannot send results", lambda: world.tracking.flush(SENDING_S), 0),
        rejected=len(rejected),
        set_aside=len(aside),
        pending_alerts=attempt("alerts", "cannot send alerts", world.dispatcher.alerting.flush, 0),
    )
    state.unreported.clear()
    return passed


def report_lasting(world: World, state: WatchState, alerts: Iterable[Alert]) -> None:
    """Send the alerts whose cause begins or ends."""
    if state.reported.kinds is None:
        state.reported.kinds = {alert.kind for alert in world.dispatcher.alerts.open_alerts(world.keeping.run)}
    for alert in alerts:
        if (alert.kind in state.reported.kinds) != (alert.state is AlertState.FIRING):
            world.dispatcher.dispatch([alert])
            state.reported.kinds ^= {alert.kind}


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
    finished = (*state.reasks.taken_over.values(), *world.queue.finished())  # written by workers on any machine
    for record in interrupted_first(finished, world.history):
        state.demand_lead(now)  # reviews take long, and two leaders would both judge
        at = f"step {record.plan.checkpoint.step} of {record.plan.checkpoint.run_id}"
        with state.aside.around(record.plan.id, f"cannot compute the verdicts of {at}") as is_due:
            if not is_due:
                continue
            if record.plan.calibration:
                calibrations.append(calibrating.take_calibration(record, context))
            elif record.plan.sweep is None:
                # The newest report of a step counts, and an earlier review may have judged another one of this step.
                reviewed.append(review(world, record, now + len(reviewed) * _APART))
                state.reasks.taken_over.pop(record.plan.id, None)
                world.queue.acknowledge(record.plan.id)  # after review: a crash in between repeats it harmlessly
            elif world.sweeps is not None:  # sweeps have no verdicts and no alerts
                sweeps.take_sweep_result(record, world.sweeps)
                swept += 1
    state.seen.update((one.report.run_id, one.report.step) for one in reviewed)
    if reviewed:
        world.wake_workers()
        with state.aside.around("collect", "cannot delete what is not kept"):
            collect(replace(world.keeping, waiting=state.reasks.identities()))
    return tuple(reviewed), tuple(calibrations), swept
