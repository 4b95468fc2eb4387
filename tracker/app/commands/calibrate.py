"""`tracker calibrate`: evaluates one checkpoint twice on the full suite, through the queue and the workers.

    plan = next_calibration(history, checkpoint, suite, serve)   # begun and not finished: the same plan again
    calibration = run_calibration(plan, context, clock=clock, meanwhile=...)

A kill at any line loses nothing: the plan waits in the queue with the answers that it has. This command or a watcher,
whichever is first, handles its record.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

from eval_jobs.identity import calibration_plan, serve_settings, suite_fingerprint
from eval_jobs.ports import Clock
from eval_jobs.queue_types import Backlog, QueueState
from eval_jobs.types import Checkpoint, EvalPlan, EvalRecord, ServeSpec, Suite
from tracker.app.steps.calibrating import CalibrationContext, take_calibration
from tracker.domain.records.calibration import Calibration
from tracker.ports import CalibrationStore

LOOK_S = 0.5
"""Interval between two polls of the queue, in seconds."""


@dataclass(frozen=True, kw_only=True)
class CalibrationEstimate:
    """What a calibration will cost, estimated from an earlier evaluation of the same suite in the run."""

    step: int
    """Step of that evaluation."""
    answers: int
    """Number of answers of both passes together."""
    load_s: float
    """Twice the time to load the weights, in seconds."""
    scoring_s: float
    """Twice the time of the evaluation, in seconds."""


def next_calibration(history: CalibrationStore, checkpoint: Checkpoint, suite: Suite, serve: ServeSpec) -> EvalPlan:
    """Return the plan of the next calibration: the one that was begun and not finished, if there is one."""
    finished = {calibration.plan.id for calibration in history.calibrations()}
    plans = (calibration_plan(checkpoint, suite, serve, number) for number in count(1))
    return next(plan for plan in plans if plan.id not in finished)


def run_calibration(
    plan: EvalPlan, context: CalibrationContext, *, clock: Clock, meanwhile: Callable[[QueueState], None]
) -> Calibration:
    """Queue a calibration before everything else of its run, wait for it, and return it.

    `meanwhile` is called at every poll until then, to show progress and to restart workers.
    """
    context.queue.add(plan, now=clock.now(), backlog=Backlog.NEWEST, keep=True)
    while True:
        for record in context.queue.finished():
            if record.plan.id == plan.id:  # a watcher may have been first
                take_calibration(record, context)
        found = next((c for c in context.calibrations.calibrations() if c.plan.id == plan.id), None)
        if found is not None:
            return found
        meanwhile(context.queue.state())
        clock.sleep(LOOK_S)


def calibration_estimate(
    plan: EvalPlan, records: Sequence[EvalRecord], read: Callable[[str], EvalRecord | None]
) -> CalibrationEstimate | None:
    """Return the cost of a calibration, estimated from the newest of `records` that measured the same; None: unknown.

    `records` are without samples; `read` returns a record with them.
    """
    alike = [record for record in records if _asked(record.plan) == _asked(plan)]
    newest = max(alike, key=lambda record: record.finished_at, default=None)
    full = None if newest is None else read(newest.plan.id)
    if full is None or full.engine is None or full.cost is None:
        return None
    return CalibrationEstimate(
        step=full.plan.checkpoint.step,
        answers=2 * sum(len(result.samples) for result in full.results),
        load_s=2 * full.engine.load_s,
        scoring_s=2 * full.cost.evaluating_s,
    )


def _asked(plan: EvalPlan) -> tuple[str, object, bool]:
    """Return a key that is equal for full plans of the same suite with the same serve settings."""
    return suite_fingerprint(plan.suite), serve_settings(plan.serve), plan.suite.part is None
