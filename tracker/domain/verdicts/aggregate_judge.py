"""What an imported checkpoint lost, where only means and standard errors are known. Pure.

    verdicts = judge_aggregates(context)        # by benchmark; {} where every result has its samples

A loss is `suspect` at most, shown and never told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from eval_jobs.errors import BadData
from eval_jobs.types import EvalPlan, EvalResult
from tracker.domain.records.display import score_text, steps_text
from tracker.domain.records.types import Baseline, Policy, Verdict, VerdictWord
from tracker.domain.regression.aggregates import AggregateSeries, aggregate_evidence
from tracker.domain.regression.budget import SCORE_SHARE
from tracker.domain.regression.detector import ErrorBudget, Evidence
from tracker.domain.scores.matrix import IntArray
from tracker.domain.scores.mean_series import NO_MEANS, Means, MeanSeries, means_of
from tracker.domain.scores.series import series_keys
from tracker.domain.scores.summary import summarise
from tracker.domain.verdicts.aggregate_verdict import capped, had_something_to_lose
from tracker.domain.verdicts.candidates import JudgingContext, thresholds_of
from tracker.domain.verdicts.hypothesis import EQUIVALENCE_POOLED, Thresholds, gains, losses, suspects, word_of
from tracker.domain.verdicts.reasons import reason_for_first, reason_for_too_early, reason_for_unlike


def judge_aggregates(context: JudgingContext) -> Mapping[str, Verdict]:
    """Return the verdicts on the results of the candidate that have no samples, by benchmark."""
    record = context.record
    own = {o.benchmark: o for o in record.outcomes if isinstance(o, EvalResult) and o.aggregate is not None}
    if not own:
        return {}
    known = means_of(context.run_context.records) if context.run_context.means is None else context.run_context.means
    series: dict[str, AggregateSeries] = {}
    plain: dict[str, tuple[VerdictWord, str]] = {}
    for name, result in own.items():
        points = _points(context, result, known)
        if points.steps.size == 1:
            plain[name] = _alone(context, result)
            continue
        try:
            series[name] = _series(points, result, context.policy)
        except BadData as problem:
            plain[name] = VerdictWord.INCONCLUSIVE, problem.message
    judged = _judged(context, series)
    return {name: judged[name] if name in judged else _verdict_of(result, *plain[name]) for name, result in own.items()}


# --- private


@dataclass(frozen=True, kw_only=True)
class _Case:
    """One benchmark at the candidate."""

    series: AggregateSeries
    tests: tuple[Evidence, ...]


def _points(context: JudgingContext, result: EvalResult, known: Means) -> MeanSeries:
    """Return what is known up to the candidate, without what came before a level that somebody accepted."""
    accepted = (
        a for a in context.run_context.acceptances if a.benchmark == result.benchmark and a.step <= context.step
    )
    since = max((a.from_step for a in accepted), default=0)
    (key,) = series_keys(context.record.plan, [result])
    before = known[key].between(since, context.step) if key in known else NO_MEANS
    return before if result.aggregate is None else before.with_point(context.step, result.aggregate)


def _series(points: MeanSeries, result: EvalResult, policy: Policy) -> AggregateSeries:
    means, chance = points.means, policy.chance.get(result.benchmark)
    if not result.higher_is_better:
        means, chance = 1.0 - means, None if chance is None else 1.0 - chance
    return AggregateSeries(steps=points.steps, means=means, stderrs=points.stderrs, chance=chance)


def _judged(context: JudgingContext, series: Mapping[str, AggregateSeries]) -> dict[str, Verdict]:
    level = ErrorBudget(
        alpha=context.policy.alpha * SCORE_SHARE,
        planned=context.policy.planned_checkpoints,
        benchmarks=context.benchmarks,
    )
    found = aggregate_evidence(tuple(series.values()), context.step, level)
    results = {o.benchmark: o for o in context.record.outcomes if isinstance(o, EvalResult)}
    return {
        name: _verdict(context, results[name], _Case(series=one, tests=tests))
        for (name, one), tests in zip(series.items(), found, strict=True)
    }


def _verdict(context: JudgingContext, result: EvalResult, case: _Case) -> Verdict:
    tests = case.tests
    if not tests:
        return _verdict_of(result, VerdictWord.INCONCLUSIVE, reason_for_too_early())
    thresholds = thresholds_of(context.policy)
    learned = had_something_to_lose(case.series, tests)
    word = word_of(tests, thresholds)
    shown = _deciding(word, tests, thresholds)
    reason = _reason(case.series, shown, result)
    if word is VerdictWord.REGRESSED and not learned:
        reason += "; it never was above chance"
    return _verdict_of(result, capped(word), reason)


def _deciding(word: VerdictWord, tests: Sequence[Evidence], thresholds: Thresholds) -> Evidence:
    if word is VerdictWord.REGRESSED:
        return min(losses(tests, thresholds), key=lambda e: e.p_worse)
    if word is VerdictWord.SUSPECT:
        return min(suspects(tests, thresholds), key=lambda e: e.p_worse)
    if word is VerdictWord.IMPROVED:
        return min(gains(tests, thresholds), key=lambda e: e.p_better)
    if word is VerdictWord.EQUIVALENT:
        return max((e for e in tests if e.m <= EQUIVALENCE_POOLED), key=lambda e: e.m)
    return tests[0]


def _alone(context: JudgingContext, result: EvalResult) -> tuple[VerdictWord, str]:
    """Return what is said of a result that has nothing to be compared with."""
    plan = max(_plans_before(context, result.benchmark), key=lambda p: p.checkpoint.step, default=None)
    if plan is not None:
        return VerdictWord.INCOMPARABLE, reason_for_unlike(context.record.plan, plan, result.benchmark)
    return VerdictWord.FIRST, reason_for_first(summarise(result).mean or 0.0)


def _plans_before(context: JudgingContext, benchmark: str) -> Iterator[EvalPlan]:
    """Yield the plans of lower steps that gave a result of a benchmark, measured in whatever way."""
    suite = context.record.plan.suite.name
    for record in context.run_context.records:
        is_before = record.plan.checkpoint.step < context.step and record.plan.suite.name == suite
        if is_before and any(isinstance(o, EvalResult) and o.benchmark == benchmark for o in record.outcomes):
            yield record.plan


def _reason(series: AggregateSeries, shown: Evidence, result: EvalResult) -> str:
    """Say what changed, and that it rests on means alone."""
    before, now = (_mean(series, rows, result) for rows in (shown.blocks.base, shown.blocks.new))
    steps = tuple(int(series.steps[row]) for row in shown.blocks.base)
    peak = ", the peak" if shown.blocks.baseline is Baseline.PEAK else ""
    pooled = f" (mean of the newest {shown.m})" if shown.m > 1 else ""
    low, high = shown.test.interval()
    change = f"{score_text(before)} -> {score_text(now)}{pooled} since {steps_text(steps)}{peak}"
    p = min(shown.p_worse, shown.p_better)
    return f"{change}; change {low:+.3f} to {high:+.3f}, p = {p:.1g}, from means without samples"


def _mean(series: AggregateSeries, rows: IntArray, result: EvalResult) -> float:
    mean = float(series.means[rows].mean())
    return mean if result.higher_is_better else 1.0 - mean


def _verdict_of(result: EvalResult, word: VerdictWord, reason: str) -> Verdict:
    known = summarise(result)
    return Verdict(
        benchmark=result.benchmark,
        word=word,
        reason=reason,
        score=known.mean,
        stderr=known.stderr,
        coverage=known.coverage,
        alpha_test=0.0,
    )
