"""Which plans a checkpoint gets: all measurements, or a part of each benchmark first."""

from eval_jobs.identity import make_plan, rest_plan, screen_plan
from eval_jobs.types import Checkpoint, EvalPlan
from tracker.app.steps.screening import schedule_of, scheduled_plans
from tracker.app.world import MeasurementPlan, WatchState, World
from tracker.domain.records.types import Pinned, Policy


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


def withdraw_outdated(world: World) -> tuple[EvalPlan, ...]:
    """Remove the waiting plans that other settings made, and return them; the source finds their checkpoints again.

    Plans of calibrations and sweeps stay: they were requested as they are.
    """
    outdated = []
    for plan in world.queue.waiting():
        is_ours = plan.sweep is None and not plan.calibration
        if is_ours and plan.id not in _ids_of(plan, world.measurement) and world.queue.withdraw(plan.id):
            outdated.append(plan)
    return tuple(outdated)


def is_baseline(checkpoint: Checkpoint, policy: Policy) -> bool:
    """Return whether the policy compares every checkpoint with this one."""
    return policy.pinned == Pinned(run_id=checkpoint.run_id, step=checkpoint.step)


def _ids_of(plan: EvalPlan, measurement: MeasurementPlan) -> set[str]:
    """Return the IDs of all plans that the settings can make for the checkpoint and the benchmarks of `plan`."""
    wholes = plans_for(plan.checkpoint, measurement, first=plan.checkpoint)
    ids = {whole.id for whole in wholes}
    if measurement.screening is None:
        return ids
    names = [benchmark.name for benchmark in plan.suite.benchmarks]
    for whole in wholes:
        screened = screen_plan(whole, measurement.screening.screen)
        ids |= {screened.id, rest_plan(screened, names).id}
    return ids
