"""Which plans a checkpoint gets: all measurements, or a part of each benchmark first."""

from collections.abc import Iterator
from dataclasses import replace

from eval_jobs.identity import make_plan, missing_plan, rest_plan, screen_plan
from eval_jobs.ports import PlanQueue
from eval_jobs.types import Checkpoint, EvalPlan
from tracker.app.steps.known_results import KnownResults
from tracker.app.steps.screening import schedule_of, scheduled_plans
from tracker.app.world import MeasurementPlan, WatchState, World
from tracker.domain.records.policy import Pinned, Policy
from tracker.domain.scores.known import missing_of


def plans_for(checkpoint: Checkpoint, measurement: MeasurementPlan, *, first: Checkpoint) -> tuple[EvalPlan, ...]:
    """Return the plans of `checkpoint`, in a run whose first checkpoint is `first`. Pure.

    The first suite carries the latency loads and their reference. A checkpoint is never its own reference.
    """
    reference = first if measurement.reference == "first" else measurement.reference
    if reference is not None and reference.digest == checkpoint.digest:
        reference = None
    timed, *others = measurement.suites
    return (
        make_plan(checkpoint, timed, measurement.serve, measurement.loads, reference),
        *(make_plan(checkpoint, suite, measurement.serve, ()) for suite in others),
    )


def first_plans(checkpoint: Checkpoint, world: World, state: WatchState, *, keep: bool) -> tuple[EvalPlan, ...]:
    """Return the first plans of a new checkpoint: all samples, or a part of each benchmark."""
    run_id, screening = checkpoint.run_id, world.measurement.screening
    plans = plans_for(checkpoint, world.measurement, first=state.first[run_id])
    if screening is None:
        return plans
    if run_id not in state.schedules:
        state.schedules[run_id] = schedule_of(world.history, run_id)
    return scheduled_plans(plans, screening, world.queue, state.schedules[run_id], keep=keep)


def still_to_ask(plan: EvalPlan, known: KnownResults, queue: PlanQueue) -> EvalPlan | None:
    """Return what is to be queued for `plan`: itself, a plan of what is missing, or None if every result is known."""
    if not known.of(plan.checkpoint):
        return plan
    missing = missing_of(plan, known.usable(plan))
    # A plan that failed is asked again as it is, when the watcher starts.
    if missing is not None and queue.known([plan.id]):
        return plan
    return missing


def withdraw_outdated(world: World) -> tuple[EvalPlan, ...]:
    """Remove the waiting plans that other settings made, and return them; the source finds their checkpoints again."""
    outdated = []
    for plan in world.queue.waiting():
        if renewed(plan, world.measurement) != plan and world.queue.withdraw(plan.id):
            outdated.append(plan)
    return tuple(outdated)


def renewed(plan: EvalPlan, measurement: MeasurementPlan) -> EvalPlan | None:
    """Return a plan as the present settings make it; None: they make another one for its checkpoint and benchmarks.

    Plans of calibrations and sweeps stay as they are, as they were requested.
    """
    if plan.sweep is not None or plan.calibration:
        return plan
    for made in _made_for(plan, measurement):
        if made.id == plan.id:
            return replace(made, reference=plan.reference)
    return None


def is_baseline(checkpoint: Checkpoint, policy: Policy) -> bool:
    """Return whether the policy compares every checkpoint with this one."""
    return policy.pinned == Pinned(run_id=checkpoint.run_id, step=checkpoint.step)


def _made_for(plan: EvalPlan, measurement: MeasurementPlan) -> Iterator[EvalPlan]:
    """Yield all plans that the settings can make for the checkpoint and the benchmarks of `plan`."""
    names = [benchmark.name for benchmark in plan.suite.benchmarks]
    for whole in plans_for(plan.checkpoint, measurement, first=plan.checkpoint):
        forms = [whole]
        if measurement.screening is not None:
            screened = screen_plan(whole, measurement.screening.screen)
            forms.append(screened)
            for loads in (screened.loads, ()):  # without: its benchmarks were asked one after the other
                yield rest_plan(replace(screened, loads=loads), names)
        for form in forms:
            yield form
            if plan.whole and set(form.suite.benchmarks) <= set(plan.whole):  # else more may be missing now
                yield missing_plan(form, names, plan.loads)
