"""A part of each benchmark first: which checkpoints are asked whole from the start, and which because of their screen.

    for plan in paced(plans, screening, queue, pace, keep=keep): queue.add(plan, ...)
    record = whole_record(record, history)        # a screen and its rest become one record

checkpoint -> screen plan -> record -> report -> (rest plan -> record -> report): nothing flows back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from eval_jobs.errors import StoreError
from eval_jobs.identity import rest_plan, screen_plan
from eval_jobs.ports import Queue
from eval_jobs.types import BenchmarkFailure, EvalPlan, EvalRecord, Part
from tracker.domain.screening import Screening, is_screen, joined, to_ask_whole
from tracker.domain.types import Report
from tracker.ports import History


@dataclass(kw_only=True)
class Pace:
    """How far a run is; a watcher that starts again takes it from the history."""

    planned: int = 0
    since_whole: int = 0
    """Checkpoints since the last one that was asked whole."""


def paced(
    plans: Sequence[EvalPlan], screening: Screening, queue: Queue, pace: Pace, *, keep: bool
) -> tuple[EvalPlan, ...]:
    """Return what to ask of a checkpoint at first: `plans`, or their screens; what was planned before stays so.

    Args:
        plans: of one checkpoint, whole.
        screening: the settings.
        queue: knows what was planned.
        pace: of the checkpoint's run; it is moved on.
        keep: the checkpoint is asked whole in any case.
    """
    screens = tuple(screen_plan(plan, screening.screen) for plan in plans)
    known = queue.known([plan.id for plan in (*plans, *screens)])
    if known:
        return tuple(whole if whole.id in known else part for whole, part in zip(plans, screens, strict=True))
    is_whole = keep or pace.planned < screening.first or pace.since_whole + 1 >= screening.every
    pace.planned += 1
    pace.since_whole = 0 if is_whole else pace.since_whole + 1
    return tuple(plans) if is_whole else screens


def pace_of(history: History, run_id: str) -> Pace:
    """Return how far a run was when it was watched last."""
    whole: dict[int, bool] = {}
    for record in history.records(run_id):
        step = record.plan.checkpoint.step
        whole[step] = whole.get(step, False) or record.plan.suite.part is None
    steps = sorted(whole)
    since = next((at for at, step in enumerate(reversed(steps)) if whole[step]), len(steps))
    return Pace(planned=len(steps), since_whole=since)


def plan_of_rest(record: EvalRecord, report: Report) -> EvalPlan | None:
    """Return the plan that asks what suspicious screens have left out, None where none is."""
    names = to_ask_whole(report) if is_screen(record.plan) else ()
    return rest_plan(record.plan, names) if names else None


def whole_record(record: EvalRecord, history: History) -> EvalRecord:
    """Return the record itself or, of a rest, the record of both parts together.

    Where the screen is gone the rest says nothing: every benchmark of it is a failure then.
    """
    part = record.plan.suite.part
    if part is None or not part.is_rest:
        return record
    screen = _screen_of(record, part, history)
    if screen is not None:
        return joined(screen, record)
    gone = StoreError("the answers to the first part of the benchmark are gone", hint="`tracker run` asks all of it")
    outcomes = tuple(
        BenchmarkFailure(
            benchmark=o.benchmark,
            fingerprint=o.fingerprint,
            code=gone.code,
            message=gone.message,
            hint=gone.hint,
            retryable=False,
        )
        for o in record.outcomes
    )
    return replace(record, outcomes=outcomes)


# --- private


def _screen_of(rest: EvalRecord, part: Part, history: History) -> EvalRecord | None:
    own, wanted = rest.plan, replace(part, is_rest=False)
    found = [
        known.plan.id
        for known in history.records(own.checkpoint.run_id)
        if known.plan.checkpoint.digest == own.checkpoint.digest
        and known.plan.checkpoint.step == own.checkpoint.step
        and known.plan.suite.name == own.suite.name
        and known.plan.suite.part == wanted
        and rest_plan(known.plan, [b.name for b in own.suite.benchmarks]).id == own.id
    ]
    return history.record(found[-1]) if found else None
