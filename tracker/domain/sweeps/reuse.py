"""What a run's own evaluations have answered already of what a sweep asks. Pure.

own = own_answer(plan, records)              # the record that holds the same questions, asked in the same way; or None
plan_without_scores(plan)                    # what is left to do: its loads
with_own_scores(plan, own, timed)            # the plan's result: scores of `own`, latency of `timed`
"""

from collections.abc import Sequence
from dataclasses import replace

from eval_jobs.identity import benchmark_fingerprint
from eval_jobs.types import Checkpoint, EvalPlan, EvalRecord, EvalResult, SampleStatus
from tracker.domain.scores.pairing import served_alike


def run_of_target(plan: EvalPlan) -> str:
    """Return the run that a sweep's checkpoint is of: its plan may be counted to the run whose sweep it is."""
    target = "" if plan.sweep is None else plan.sweep.target
    return target.rpartition("@")[0] or plan.checkpoint.run_id


def own_answer(plan: EvalPlan, records: Sequence[EvalRecord]) -> EvalRecord | None:
    """Return the newest evaluation of the run that asked all that `plan` asks, so that a score could not differ.

    Not for what is asked at every turn (endpoints, `again`): it is asked to see what has changed since.

    Args:
        plan: of a sweep.
        records: of the run of its checkpoint, by time; samples are not looked at.
    """
    if plan.sweep is None or plan.sweep.turn or not plan.suite.benchmarks:
        return None
    return next((record for record in reversed(records) if _holds(record, plan)), None)


def is_whole(own: EvalRecord, plan: EvalPlan) -> bool:
    """Say whether every question of the plan was answered there: what failed then may be answered now."""
    for result in _results(own, plan):
        if any(sample.status is SampleStatus.ERROR for sample in result.samples):
            return False
    return True


def plan_without_scores(plan: EvalPlan) -> EvalPlan:
    """Return the plan as a worker gets it where only latency is to be measured; it keeps its id."""
    return replace(plan, suite=replace(plan.suite, benchmarks=()))


def with_own_scores(plan: EvalPlan, own: EvalRecord, timed: EvalRecord | None = None) -> EvalRecord:
    """Return what came of a plan.

    Args:
        plan: of the sweep, whole.
        own: the run's own evaluation.
        timed: what a worker measured for the sweep; None: nothing was left to measure.
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


# --- private


def _holds(record: EvalRecord, plan: EvalPlan) -> bool:
    wanted = {b.name: benchmark_fingerprint(b, plan.suite) for b in plan.suite.benchmarks}
    known = {o.benchmark: o.fingerprint for o in record.results if _is_own(o)}
    is_alike = served_alike(record.plan, plan) and record.plan.serve.base_url == plan.serve.base_url
    same = _content(record.plan.checkpoint) == _content(plan.checkpoint)
    return same and is_alike and not record.plan.calibration and wanted.items() <= known.items()


def _is_own(result: EvalResult) -> bool:
    return not result.left_out and result.aggregate is None


def _content(checkpoint: Checkpoint) -> tuple[int, str, str]:
    return checkpoint.step, checkpoint.digest, checkpoint.files_digest


def _results(own: EvalRecord, plan: EvalPlan) -> tuple[EvalResult, ...]:
    by_name = {outcome.benchmark: outcome for outcome in own.results}
    return tuple(by_name[b.name] for b in plan.suite.benchmarks)
