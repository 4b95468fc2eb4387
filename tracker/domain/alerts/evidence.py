"""The evidence of an alert, and the command that shows more, derived from verdicts. Pure."""

import shlex
from collections.abc import Sequence

from tracker.domain.records.alerts import AlertEvidence
from tracker.domain.records.reason_text import shown_flips
from tracker.domain.records.types import Baseline, LatencyVerdict, Measure, Report, Verdict


def alert_evidence_of(verdict: Verdict) -> AlertEvidence:
    """Return the numbers that decided a verdict; only the score if nothing was compared."""
    if not verdict.comparisons:
        return AlertEvidence(score=verdict.score)
    decided = verdict.comparisons[0]
    counted = shown_flips(decided)
    is_of_run, is_score = decided.baseline is not Baseline.PINNED, verdict.measure is Measure.SCORE
    return AlertEvidence(
        score=verdict.score if is_score else None,
        change=decided.delta,
        ci_low=decided.ci_low,
        ci_high=decided.ci_high,
        baseline_steps=decided.baseline_steps if is_of_run else (),
        n_common=decided.n_common,
        n_lost=counted.lost if is_score else 0,
        n_gained=counted.gained if is_score else 0,
    )


def evidence_of_latency(slower: Sequence[LatencyVerdict]) -> AlertEvidence | None:
    """Return the numbers of the verdict with the largest ratio; None if there is none."""
    worst = max(slower, key=lambda v: v.ratio or 0.0, default=None)
    if worst is None:
        return None
    reference = () if worst.reference_step is None else (worst.reference_step,)
    return AlertEvidence(
        change=worst.ratio,
        ci_low=worst.ci_low,
        ci_high=worst.ci_high,
        is_ratio=True,
        baseline_steps=reference,
        n_common=worst.requests,
    )


def comparing(report: Report, verdict: Verdict) -> str:
    """Return the command that compares the report's checkpoint with the newest step of its baseline; "" for none."""
    before = max(alert_evidence_of(verdict).baseline_steps, default=None)
    if before is None:
        return ""
    names = (shlex.quote(f"{report.run_id}@{step}") for step in (before, report.step))
    return f"tracker compare {' '.join(names)}"


def looking(run_id: str) -> str:
    """Return the command that shows a run step by step."""
    return f"tracker history {shlex.quote(run_id)}"
