"""Reports without their evidence, enough for a table of thousands of checkpoints and its headline. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from eval_jobs.types import EvalRecord, EvalResult
from tracker.domain.records.branches import branches_of
from tracker.domain.records.types import Report, Verdict, VerdictWord


def outline_of(report: Report) -> Report:
    """Return a report with word, score, coverage, onset and screening of each benchmark, and why one is missing."""
    verdicts = tuple(_outline(v) for v in report.verdicts)
    return replace(report, verdicts=verdicts, findings=(), incidents=(), latency=(), cost=None)


def without_samples(record: EvalRecord) -> EvalRecord:
    """Return a record without the samples of its results."""
    outcomes = tuple(replace(o, samples=()) if isinstance(o, EvalResult) else o for o in record.outcomes)
    return replace(record, outcomes=outcomes)


def newest_of_benchmarks(reports: Iterable[Report]) -> frozenset[str]:
    """Return the plan ids of the reports that are the newest on any of their benchmarks; `reports` ordered by step.

    Reports of checkpoints that training left behind are excluded.
    """
    known = tuple(reports)
    branches = branches_of(r.checkpoint for r in known)
    newest = (r for r in known if branches.left_by(r.checkpoint) is None)
    return frozenset({v.benchmark: r.plan_id for r in newest for v in r.verdicts}.values())


def _outline(verdict: Verdict) -> Verdict:
    return Verdict(
        benchmark=verdict.benchmark,
        word=verdict.word,
        reason=verdict.reason if verdict.word is VerdictWord.MISSING else None,
        score=verdict.score,
        stderr=None,
        coverage=verdict.coverage,
        alpha_test=0.0,
        lost_since=verdict.lost_since,
        screened=verdict.screened,
    )
