"""`tracker evaluate`: evaluates one checkpoint in this process, without queue or worker."""

from dataclasses import dataclass
from datetime import datetime

from eval_jobs.ports import ShowProgress
from eval_jobs.queue.rules import may_pass
from eval_jobs.run import Tools, run_plan
from eval_jobs.types import Checkpoint, EvalPlan, EvalRecord
from tracker.app.plans import plans_for
from tracker.app.review import review
from tracker.app.steps.collect import collect
from tracker.app.steps.known_results import KnownResults
from tracker.app.world import World
from tracker.domain.records.imported import first_checkpoint
from tracker.domain.records.types import Report
from tracker.domain.scores.known import missing_of


@dataclass(frozen=True, kw_only=True)
class EvaluatedOnce:
    """Everything that was measured at one checkpoint."""

    results: tuple[tuple[EvalRecord, Report], ...]
    """One for each suite."""
    unsent: int
    """Results that still wait for MLflow."""


def evaluate_once(
    checkpoint: Checkpoint, world: World, *, tools: Tools, progress: ShowProgress, reuse: bool = False
) -> EvaluatedOnce:
    """Run every plan of `checkpoint` in this process, and review the records like any other.

    With `reuse`, known results of the same weights with the same settings are used.
    """
    world.publish_training(checkpoint)
    results = []
    first = first_checkpoint(checkpoint, world.history.records(checkpoint.run_id))
    known = KnownResults(world.history, world.keeping.run)
    for plan in plans_for(checkpoint, world.measurement, first=first):
        record = _known_record(plan, known, world, tools.clock.now()) if reuse else None
        asked = plan
        if record is None:
            if reuse:
                asked = missing_of(plan, known.usable(plan)) or plan
            record = known.completed(run_plan(asked, tools=tools, progress=progress))
        results.append((record, review(world, record, tools.clock.now()).report))
        if not may_pass(record):
            tools.evaluator.forget(asked.id)  # otherwise the next attempt evaluates only what is missing
    unsent = world.tracking.flush()
    collect(world.keeping)
    return EvaluatedOnce(results=tuple(results), unsent=unsent)


def _known_record(plan: EvalPlan, known: KnownResults, world: World, now: datetime) -> EvalRecord | None:
    """Return the record of `plan` if all of its results are known, else None."""
    if missing_of(plan, known.usable(plan)) is not None:
        return None
    current = known.current(plan)
    if current is not None and len(current.results) == len(current.outcomes):
        return world.history.record(current.plan.id)
    return known.record_of(plan, now)
