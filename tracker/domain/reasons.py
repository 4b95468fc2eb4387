"""One sentence per verdict, for a person who has only that sentence. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from eval_jobs.types import BenchmarkFailure, EvalPlan, EvalResult
from tracker.domain.baselines import MIN_COMMON, Choice, Evidence, TooFewCommon
from tracker.domain.pairing import Unlike, explain_difference
from tracker.domain.rules import regressed
from tracker.domain.scores import ScoreSummary, has_score
from tracker.domain.statistics import MCNEMAR, samples_needed
from tracker.domain.types import Baseline, Policy, VerdictWord


def reason_for_failure(failure: BenchmarkFailure) -> str:
    """Say why there is no result."""
    return f"no result: {failure.message} ({failure.code})"


def reason_for_coverage(result: EvalResult, summary: ScoreSummary, min_coverage: float) -> str:
    """Say how many samples have no score, and why the first one has none."""
    with_score = summary.scored + summary.truncated
    text = (
        f"only {with_score} of {summary.planned} samples have a score ({summary.coverage:.1%}, {min_coverage:.0%}"
        f" needed): {summary.error} errors, {summary.unscored} unscored"
    )
    detail = next((s.detail for s in result.samples if not has_score(s) and s.detail), "")
    return f"{text}; the first: {detail}" if detail else text


def reason_for_first(mean: float) -> str:
    """Say that nothing earlier exists."""
    return f"{mean:.3g}, the first usable result of this run"


def reason_for_refusal(plan: EvalPlan, benchmark: str, choice: Choice, refusal: Unlike | TooFewCommon) -> str:
    """Say what keeps a result from being compared with `choice`."""
    if isinstance(refusal, Unlike):
        differences = "; ".join(explain_difference(plan, choice.point.plan, benchmark))
        return f"not measured like step {choice.point.step}: {differences}"
    return (
        f"only {refusal.n_common} of {refusal.planned} samples have a score both here and at step {choice.point.step}"
        f" ({MIN_COMMON:.0%} needed)"
    )


def reason_for(
    word: VerdictWord, evidence: Sequence[Evidence], *, alpha_test: float, policy: Policy, detectable: float
) -> str:
    """Say what changed, against which checkpoint, and by how many samples."""
    if word is VerdictWord.IMPROVED:
        return _change(max(evidence, key=lambda e: e.comparison.delta))
    if word is VerdictWord.EQUIVALENT:
        return f"{_scores(evidence[0])}: shown to be within {policy.equivalence_margin:.2g}"
    if word is VerdictWord.INCONCLUSIVE:
        return _inconclusive(evidence[0], alpha_test, policy, detectable)
    worst = _worst(evidence, alpha_test, policy)
    if word is VerdictWord.FORGOTTEN:
        return f"{_change(worst)}; worse than the best for three checkpoints in a row"
    if word is VerdictWord.SUSPECT:
        p = worst.comparison.p_worse
        return f"{_change(worst)}: looks worse (p = {p:.1g}), an alarm over a whole run needs p < {alpha_test:.1g}"
    return _change(worst)


# --- private


def _worst(evidence: Sequence[Evidence], alpha_test: float, policy: Policy) -> Evidence:
    significant = [e for e in evidence if regressed(e.comparison, alpha_test, policy)]
    return min(significant or evidence, key=lambda e: e.comparison.delta)


def _change(evidence: Evidence) -> str:
    comparison = evidence.comparison
    counts = f"lost {comparison.n_lost} of {comparison.n_common}, gained {comparison.n_gained}"
    return f"{_scores(evidence)}; {counts}"


def _scores(evidence: Evidence) -> str:
    before, now = evidence.baseline_mean, evidence.mean
    digits = 2 if abs(now - before) >= 0.05 else 3
    comparison = evidence.comparison
    best = ", the best" if comparison.baseline is Baseline.BEST else ""
    return f"{before:.{digits}f} -> {now:.{digits}f} since step {comparison.baseline_step}{best}"


def _inconclusive(evidence: Evidence, alpha_test: float, policy: Policy, detectable: float) -> str:
    comparison = evidence.comparison
    text = (
        f"{_scores(evidence)}: too little to conclude from {comparison.n_common} samples;"
        f" a true change below {detectable:.2g} can go unseen"
    )
    if comparison.method != MCNEMAR or detectable <= 2 * policy.min_effect:
        return text
    changed_rate = max(comparison.n_lost + comparison.n_gained, 1) / comparison.n_common
    needed = samples_needed(2 * policy.min_effect, changed_rate, alpha_test)
    if needed <= comparison.n_common:
        return text
    return f"{text}; about {float(f'{needed:.2g}'):,.0f} samples would show {2 * policy.min_effect:.2g}"
