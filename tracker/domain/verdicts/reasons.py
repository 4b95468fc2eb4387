"""One sentence per verdict, for a person who has only that sentence. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from eval_jobs.types import BenchmarkFailure, EvalPlan, EvalResult
from tracker.domain.records.display import steps_text
from tracker.domain.records.types import Baseline, Comparison, Measure, Screened, Verdict, VerdictWord
from tracker.domain.regression.detector import Evidence
from tracker.domain.scores.pairing import explain_difference
from tracker.domain.scores.summary import ScoreSummary, has_score
from tracker.domain.verdicts.decision import MIN_COMMON, MIN_SAMPLES
from tracker.domain.verdicts.episodes import FORGOTTEN_AFTER, RECOVERED_AFTER
from tracker.domain.verdicts.hypothesis import Hypothesis


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


def reason_for_screen(verdict: Verdict, part: Screened) -> str:
    """Say that a part was asked, and what follows from it."""
    then = ", the others are asked next" if verdict.word is VerdictWord.SUSPECT else ""
    return f"{verdict.reason}; {part.asked} of {part.asked + part.left_out} samples were asked{then}"


def reason_for_too_early() -> str:
    """Say that one earlier checkpoint is too little."""
    return "verdicts begin with the third checkpoint"


def reason_for_unlike(plan: EvalPlan, earlier: EvalPlan, benchmark: str) -> str:
    """Say what keeps a result from being compared with those of an earlier plan."""
    differences = "; ".join(explain_difference(plan, earlier, benchmark))
    return f"not measured like step {earlier.checkpoint.step}: {differences}"


def reason_for_too_few_common(evidence: Sequence[Evidence]) -> str:
    """Say that too few samples are scored on both sides."""
    most = max(evidence, key=lambda e: e.test.n).test
    if most.n < MIN_SAMPLES and most.common_fraction >= MIN_COMMON:
        return f"too few samples to judge by: {most.n} have a score on both sides, {MIN_SAMPLES} are needed"
    return f"only {most.n} samples have a score on both sides ({most.common_fraction:.1%}, {MIN_COMMON:.0%} needed)"


def reason_for(
    word: VerdictWord,
    deciding: Comparison,
    means: tuple[float, float],
    hypothesis: Hypothesis,
    detectable: float | None,
) -> str:
    """Say what changed, against which checkpoints, and by how many samples.

    Args:
        word: the verdict.
        deciding: the comparison that it rests on.
        means: of the baseline and of the candidate's side, as the benchmark reports them.
        hypothesis: what was tried.
        detectable: smallest true loss that would have been seen.
    """
    change = _change(deciding, means, hypothesis.subject.measure)
    if word is VerdictWord.EQUIVALENT:
        return f"{change}: shown to be within {hypothesis.thresholds.equivalence_margin:.2g}"
    if word is VerdictWord.INCONCLUSIVE:
        seen = "" if detectable is None else f"; a true loss below {detectable:.2g} can go unseen"
        return f"{change}: too little to conclude from {deciding.n_common} samples{seen}"
    counted = f"{change}; {_flips_text(deciding)}"
    if hypothesis.subject.measure is not Measure.SCORE:
        counted = change
    if word is VerdictWord.FORGOTTEN:
        return f"{counted}; below the peak at {FORGOTTEN_AFTER} checkpoints in a row"
    if word is VerdictWord.RECOVERED:
        return f"{counted}; back for {RECOVERED_AFTER} checkpoints in a row"
    if word is VerdictWord.SUSPECT:
        return f"{counted}: looks worse (p = {deciding.p_worse:.1g}), an alarm over a whole run needs less"
    return counted


# --- private

_BASELINES = {Baseline.PEAK: ", the peak", Baseline.PINNED: ", the pinned model"}

_PAIR = 2
"""Steps; what was right at most of so many was right at both."""

_MEASURES = {
    Measure.SCORE: "",
    Measure.OUTPUT_LENGTH: "answers, as a share of the longest allowed: ",
    Measure.COMPLETENESS: "answers cut off: ",
}


def _flips_text(comparison: Comparison) -> str:
    """Say whom a flip is counted against: where scores still rose, few samples were right at most of many steps."""
    most = " (right at most of those steps)" if len(comparison.baseline_steps) > _PAIR and comparison.n_lost else ""
    return f"lost {comparison.n_lost} of {comparison.n_common}{most}, gained {comparison.n_gained}"


def _change(comparison: Comparison, means: tuple[float, float], measure: Measure) -> str:
    before, now = means
    digits = 2 if abs(now - before) >= 0.05 else 3
    pooled = len(comparison.pooled_steps)
    together = f" (mean of the newest {pooled})" if pooled > 1 else ""
    since = f"{steps_text(comparison.baseline_steps)}{_BASELINES.get(comparison.baseline, '')}"
    return f"{_MEASURES[measure]}{before:.{digits}f} -> {now:.{digits}f}{together} since {since}"
