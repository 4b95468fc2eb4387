"""Data of the report of one checkpoint."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dashboards.data.run import RunData, newest_records
from eval_jobs.types import EvalRecord
from tracker.domain.compare.view import ComparisonView
from tracker.domain.records.branches import branches_of
from tracker.domain.records.types import Baseline, Comparison, Report, Verdict


@dataclass(frozen=True, kw_only=True)
class CheckpointData:
    """One checkpoint, and what it is compared with."""

    own: RunData
    """Run data limited to this checkpoint: one record, one report, and the record's samples in `texts`."""
    before: EvalRecord | None = None
    """Record of the previous checkpoint on its branch, without samples; None: it is the first."""
    means: tuple[Report, ...] = ()
    """Outlines of the run: the score of every benchmark at every step."""
    views: tuple[ComparisonView, ...] = ()
    """Comparisons with the previous checkpoint, then with the best checkpoints of the benchmarks."""
    titles: tuple[str, ...] = ()
    """Aliases of the checkpoint, such as `champion`."""
    left_for: int | None = None
    """First step rewritten after the training restart that discarded this checkpoint; None: not discarded."""
    run_page: str = ""
    """File name of the run's page in the same folder; empty: there is none."""

    @property
    def record(self) -> EvalRecord:
        """Record of the checkpoint, without samples."""
        return self.own.records[0]

    @property
    def report(self) -> Report:
        """Report of the checkpoint."""
        return self.own.conclusions.reports[0]


def own_record(whole: EvalRecord, known: Iterable[EvalRecord]) -> EvalRecord:
    """Return the record of a checkpoint, with the latency that an earlier part of the same evaluation measured.

    `whole` is the record that the verdicts are based on; `known` are those of its run.
    """
    c, suite = whole.plan.checkpoint, whole.plan.suite.name
    same = [r for r in known if r.plan.checkpoint.digest == c.digest and r.plan.checkpoint.step == c.step]
    same = [r for r in same if r.plan.suite.name == suite and r.finished_at <= whole.finished_at]
    found = newest_records(same)
    if found:
        return found[-1]
    return whole


def path_to(record: EvalRecord, known: Sequence[EvalRecord]) -> tuple[EvalRecord, ...]:
    """Return the records of the earlier checkpoints that one was trained from, of its suite, ordered by step."""
    mine = record.plan.checkpoint
    branches = branches_of(r.plan.checkpoint for r in known)
    earlier = (
        r
        for r in known
        if r.plan.checkpoint.step < mine.step
        and r.plan.suite.name == record.plan.suite.name
        and branches.sees(mine, r.plan.checkpoint)
    )
    return newest_records(earlier)


def best_comparison(verdict: Verdict, step: int) -> Comparison | None:
    """Return the comparison with the best block of earlier checkpoints, preferably that of the candidate alone."""
    found = [c for c in verdict.comparisons if c.baseline is Baseline.PEAK]
    return next((c for c in found if c.pooled_steps == (step,)), next(iter(found), None))
