"""`tracker import`: results that others measured become a part of the history, judged in the order of their steps.

    taken = import_results(world, checkpoints, clock=clock, show=print)

Nobody is alerted: what is imported is the past. A checkpoint that is known already is only offered to MLflow again,
where it changes nothing; so an import that was killed is finished by the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from eval_jobs.ports import Clock
from tracker.app.pipeline import World, conclude, look_again
from tracker.domain.costs import with_cost_so_far
from tracker.domain.imports.records import ImportedCheckpoint, known_chances
from tracker.domain.late import overtaken_by
from tracker.domain.types import Policy, Report
from tracker.ports import Tracking


@dataclass(frozen=True, kw_only=True)
class Taken:
    """One imported checkpoint with its verdicts."""

    checkpoint: ImportedCheckpoint
    report: Report
    is_new: bool
    """False: it was imported before."""


def import_results(
    world: World, checkpoints: Sequence[ImportedCheckpoint], *, clock: Clock, show: Callable[[Taken], None]
) -> tuple[Taken, ...]:
    """Take over the checkpoints of one run, lowest step first; `show` is told of each."""
    world = replace(world, policy=policy_of(world, checkpoints))
    taken = []
    for checkpoint in checkpoints:
        one = _take(world, checkpoint, clock)
        show(one)
        taken.append(one)
    return tuple(taken)


def publish_all(tracking: Tracking) -> int:
    """Send what waits for MLflow until nothing does, or it takes no more; return how many results still wait."""
    left = tracking.flush()
    while left and (then := tracking.flush()) < left:
        left = then
    return left


def policy_of(world: World, checkpoints: Sequence[ImportedCheckpoint]) -> Policy:
    """Return the policy with what is known of an imported run: how long it is, and what guessing gives."""
    policy = replace(world.policy, chance={**known_chances(checkpoints), **world.policy.chance})
    if policy.planned_checkpoints is not None:
        return policy
    run_ids = {one.record.plan.checkpoint.run_id for one in checkpoints}
    steps = {r.plan.checkpoint.step for run_id in run_ids for r in world.history.records(run_id)}
    steps |= {one.record.plan.checkpoint.step for one in checkpoints}
    return replace(policy, planned_checkpoints=len(steps))


# --- private


def _take(world: World, checkpoint: ImportedCheckpoint, clock: Clock) -> Taken:
    record = checkpoint.record
    run_id = record.plan.checkpoint.run_id
    known = world.history.report(record.plan.id)
    if known is not None:
        world.tracking.publish(with_cost_so_far(record, world.history.records(run_id)), known)
        return Taken(checkpoint=checkpoint, report=known, is_new=False)
    report, memory = conclude(world, record, clock.now())
    later = overtaken_by(record, memory.records)
    world.tracking.publish(with_cost_so_far(record, memory.records), report)
    if later:
        look_again(world, later, memory, clock.now())
    return Taken(checkpoint=checkpoint, report=report, is_new=True)
