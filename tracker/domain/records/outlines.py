"""Reports without their evidence, enough for a table of thousands of checkpoints and its headline. Pure.

An outline has word, score, coverage, onset and screening of each benchmark, and why one is missing.
"""

from collections.abc import Iterable
from dataclasses import replace

from eval_jobs.types import EvalRecord, EvalResult
from tracker.domain.records.branches import branches_of
from tracker.domain.records.types import Report


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
