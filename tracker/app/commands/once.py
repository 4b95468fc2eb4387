"""`tracker evaluate`: evaluates one checkpoint in this process, without queue or worker."""

from dataclasses import dataclass

from eval_jobs.ports import ShowProgress
from eval_jobs.queue.rules import may_pass
from eval_jobs.run import Tools, run_plan
from eval_jobs.types import Checkpoint, EvalRecord
from tracker.app.plans import plans_for
from tracker.app.review import review
from tracker.app.steps.collect import collect
from tracker.app.world import World
from tracker.domain.records.imported import first_checkpoint
from tracker.domain.records.types import Report


@dataclass(frozen=True, kw_only=True)
class EvaluatedOnce:
    """Everything that was measured at one checkpoint."""

    results: tuple[tuple[EvalRecord, Report], ...]
    """One for each suite."""
    unsent: int
    """Results that still wait for MLflow."""


def evaluate_once(checkpoint: Checkpoint, world: World, *, tools: Tools, progress: ShowProgress) -> EvaluatedOnce:
    """Run every plan of `checkpoint` in this process, and review the records like any other."""
    world.publish_training(checkpoint)
    results = []
    first = first_checkpoint(checkpoint, world.history.records(checkpoint.run_id))
    for plan in plans_for(checkpoint, world.measurement, first=first):
        record = run_plan(plan, tools=tools, progress=progress)
        results.append((record, review(world, record, tools.clock.now()).report))
        if not may_pass(record):
            tools.evaluator.forget(plan.id)  # otherwise the next attempt evaluates only what is missing
    unsent = world.tracking.flush()
    collect(world.keeping)
    return EvaluatedOnce(results=tuple(results), unsent=unsent)
