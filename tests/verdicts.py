"""Verdicts on made-up records by a simple rule of this file: tests of what shows them do not depend on the judge."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from eval_jobs.types import BenchmarkFailure, EvalRecord, EvalResult, Outcome
from tracker.domain.records.reasons import Compared, Failed, NothingEarlier
from tracker.domain.records.types import RULES_VERSION, WORSE, Baseline, Comparison, Report, Verdict, VerdictWord

ALPHA_TEST = 0.05 / (100 * 3 * 2)
JITTER = 0.004


def reports_of(records: Sequence[EvalRecord]) -> tuple[Report, ...]:
    """Judge each record against the ones before it."""
    earlier: dict[str, list[_Scores]] = {}
    return tuple(_report(record, earlier) for record in records)


def outline_of(report: Report) -> Report:
    """Return a report as `History.outlines` does if newer ones replace it."""
    verdicts = tuple(_outline(v) for v in report.verdicts)
    return replace(report, verdicts=verdicts, findings=(), incidents=(), latency=(), cost=None, noise=None)


# --- private


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


@dataclass(frozen=True, kw_only=True)
class _Scores:
    step: int
    by_sample: dict[str, float]
    mean: float


def _report(record: EvalRecord, earlier: dict[str, list[_Scores]]) -> Report:
    step = record.plan.checkpoint.step
    return Report(
        run_id=record.plan.checkpoint.run_id,
        step=step,
        plan_id=record.plan.id,
        verdicts=tuple(_verdict(o, step, earlier.setdefault(o.benchmark, [])) for o in record.outcomes),
        checkpoint=record.plan.checkpoint,
        created_at=record.finished_at + timedelta(seconds=1),
        rules_version=RULES_VERSION,
    )


def _verdict(outcome: Outcome, step: int, earlier: list[_Scores]) -> Verdict:
    base = Verdict(
        benchmark=outcome.benchmark,
        word=VerdictWord.MISSING,
        reason=None,
        score=None,
        stderr=None,
        coverage=0.0,
        comparisons=(),
        alpha_test=ALPHA_TEST,
        mde=None,
    )
    if isinstance(outcome, BenchmarkFailure):
        return replace(base, reason=Failed(message=outcome.message, error=outcome.code))
    scores = _scores(outcome, step)
    values = list(scores.by_sample.values())
    base = replace(base, score=scores.mean, stderr=_stderr(values), coverage=len(values) / len(outcome.samples))
    verdict = _compared(base, scores, earlier)
    earlier.append(scores)
    return verdict


def _compared(base: Verdict, scores: _Scores, earlier: Sequence[_Scores]) -> Verdict:
    if not earlier:
        return replace(base, word=VerdictWord.FIRST, reason=NothingEarlier())
    best = max(earlier, key=lambda item: item.mean)
    comparisons = (
        _compare(Baseline.RECENT, earlier[-1], scores, tried=1),
        _compare(Baseline.PEAK, best, scores, tried=len(earlier)),
    )
    word = _word_for(comparisons, steps_since_best=sum(item.step > best.step for item in earlier))
    shown = _deciding_first(word, comparisons)
    lost_since = next((item.step for item in earlier if item.step > best.step), scores.step)
    return replace(
        base,
        word=word,
        reason=Compared(before=scores.mean - shown[0].delta, now=scores.mean, margin=0.02, in_a_row=3),
        comparisons=shown,
        mde=2.8 * 0.03,
        mde_pooled=1.6 * 0.03,
        lost_since=lost_since if word in WORSE else None,
    )


def _deciding_first(word: VerdictWord, comparisons: tuple[Comparison, Comparison]) -> tuple[Comparison, ...]:
    recent, peak = comparisons
    if word is VerdictWord.FORGOTTEN or (word is VerdictWord.REGRESSED and peak.p_worse < recent.p_worse):
        return peak, recent
    return (peak, recent) if word is VerdictWord.IMPROVED and peak.p_better < recent.p_better else (recent, peak)


def _scores(outcome: EvalResult, step: int) -> _Scores:
    by_sample = {s.sample_id: s.score for s in outcome.samples if s.score is not None}
    return _Scores(step=step, by_sample=by_sample, mean=math.fsum(by_sample.values()) / len(by_sample))


def _stderr(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1) / len(values))


def _compare(baseline: Baseline, old_side: _Scores, new_side: _Scores, *, tried: int) -> Comparison:
    old, new = old_side.by_sample, new_side.by_sample
    common = [key for key in old if key in new]
    differences = [new[key] - old[key] for key in common]
    delta, stderr = math.fsum(differences) / len(differences), max(_stderr(differences), 1e-3)
    p_worse = 0.5 * math.erfc(-delta / stderr / math.sqrt(2))
    p_items = 0.5 * math.erfc(-delta / math.sqrt(max(stderr**2 - JITTER**2, 1e-6)) / math.sqrt(2))
    return Comparison(
        baseline=baseline,
        baseline_steps=(old_side.step,),
        pooled_steps=(new_side.step,),
        n_common=len(common),
        common_fraction=len(common) / max(len(old), len(new)),
        delta=delta,
        stderr=stderr,
        ci_low=delta - 1.96 * stderr,
        ci_high=delta + 1.96 * stderr,
        p_worse=min(1.0, p_worse * tried),
        p_better=1 - p_worse,
        p_worse_items=min(1.0, p_items * tried),
        jitter=JITTER,
        selected_from=tried,
        n_lost=sum(d < -0.5 for d in differences),
        n_gained=sum(d > 0.5 for d in differences),
        method="pooled-t",
    )


def _word_for(comparisons: tuple[Comparison, Comparison], *, steps_since_best: int) -> VerdictWord:
    previous, best = comparisons
    if best.p_worse < ALPHA_TEST and best.delta < -0.02:
        return VerdictWord.FORGOTTEN if steps_since_best >= 2 and best.delta < -0.1 else VerdictWord.REGRESSED
    if min(previous.p_better, best.p_better) < ALPHA_TEST:
        return VerdictWord.IMPROVED
    if best.p_worse < 0.01:
        return VerdictWord.SUSPECT
    if max(abs(previous.ci_low), abs(previous.ci_high)) < 0.02:
        return VerdictWord.EQUIVALENT
    return VerdictWord.INCONCLUSIVE
