"""Reuse of scores of a run's own evaluations in a sweep. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from eval_jobs.identity import benchmark_fingerprint
from eval_jobs.types import Checkpoint, EvalPlan, EvalRecord, EvalResult, SampleStatus
from tracker.domain.scores.pairing import served_alike


def run_of_target(plan: EvalPlan) -> str:
    """Return the run of a sweep's checkpoint: the plan itself may belong to the run that has the sweep."""
    target = "" if plan.sweep is None else plan.sweep.target
    return target.rpartition("@")[0] or plan.checkpoint.run_id


def own_answer(plan: EvalPlan, records: Sequence[EvalRecord]) -> EvalRecord | None:
    """Return the newest evaluation of the run that covers `plan` with the same settings, or None. `records`: by time.

    None for what every sweep run evaluates (endpoints, `again`): the purpose is to see what has changed since.
    """
    if plan.sweep is None or plan.sweep.turn or not plan.suite.benchmarks:
        return None
    return next((record for record in reversed(records) if _holds(record, plan)), None)


def is_whole(own: EvalRecord, plan: EvalPlan) -> bool:
    """Return whether `own` has no failed samples of `plan`: a request that failed then may succeed now."""
    for result in _results(own, plan):
        if any(sample.status is SampleStatus.ERROR for sample in result.samples):
            return False
    return True


def plan_without_scores(plan: EvalPlan) -> EvalPlan:
    """Return the plan for a worker that only measures latency; it keeps its ID."""
    return replace(plan, suite=replace(plan.suite, benchmarks=()))


def with_own_scores(plan: EvalPlan, own: EvalRecord, timed: EvalRecord | None = None) -> EvalRecord:
    """Return the record of a plan, with scores of `own`.

    `timed` is what a worker measured for the sweep; None: nothing was left to measure.
    """
    outcomes = _results(own, plan)
    if timed is not None:
        return replace(timed, plan=plan, outcomes=outcomes)
    return EvalRecord(
        plan=plan,
        outcomes=outcomes,
        probes=(),
        engine=own.engine,
        started_at=own.started_at,
        finished_at=own.finished_at,
    )


def _holds(record: EvalRecord, plan: EvalPlan) -> bool:
    wanted = {b.name: benchmark_fingerprint(b, plan.suite) for b in plan.suite.benchmarks}
    known = {o.benchmark: o.fingerprint for o in record.results if not o.left_out and o.aggregate is None}
    is_alike = served_alike(record.plan, plan) and record.plan.serve.base_url == plan.serve.base_url
    same = _content(record.plan.checkpoint) == _content(plan.checkpoint)
    return same and is_alike and not record.plan.calibration and wanted.items() <= known.items()


def _content(checkpoint: Checkpoint) -> tuple[int, str, str]:
    return checkpoint.step, checkpoint.digest, checkpoint.files_digest


def _results(own: EvalRecord, plan: EvalPlan) -> tuple[EvalResult, ...]:
    by_name = {outcome.benchmark: outcome for outcome in own.results}
    return tuple(by_name[b.name] for b in plan.suite.benchmarks)
