"""Verdicts on imported results with means and standard errors only. Pure.

A loss is `suspect` at most: shown, without a notification.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from eval_jobs.errors import BadData
from eval_jobs.types import EvalPlan, EvalResult
from tracker.domain.records import reasons
from tracker.domain.records.policy import Policy
from tracker.domain.records.types import Baseline, Verdict, VerdictWord
from tracker.domain.regression.aggregates import AggregateSeries, aggregate_evidence
from tracker.domain.regression.detector import Evidence, blocks_test, level_test
from tracker.domain.scores.matrix import IntArray
from tracker.domain.scores.mean_series import NO_MEANS, Means, MeanSeries, means_of
from tracker.domain.scores.pairing import differences_of
from tracker.domain.scores.series import series_keys
from tracker.domain.scores.summary import summarise
from tracker.domain.scores.suspicion import at_most_suspect
from tracker.domain.verdicts.candidates import alpha_of_benchmarks, budget_of, thresholds_of
from tracker.domain.verdicts.context import JudgingContext
from tracker.domain.verdicts.decision import is_learned
from tracker.domain.verdicts.hypothesis import EQUIVALENCE_POOLED, Thresholds, gains, losses, rises, suspects, word_of
from tracker.domain.verdicts.losses.incidents import counting
from tracker.domain.verdicts.suite import Part

_BETTER = frozenset((VerdictWord.IMPROVED, VerdictWord.RISING))


@dataclass(frozen=True, kw_only=True)
class JudgedAggregates:
    """The verdicts on the candidate's results without samples, and what they are based on."""

    verdicts: Mapping[str, Verdict]
    """By benchmark."""
    parts: tuple[Part, ...] = ()
    """Those that were tested, for the suite as a whole."""


def judge_aggregates(context: JudgingContext) -> JudgedAggregates:
    """Return the verdicts on the candidate's results without samples."""
    own = [result for result in context.record.results if result.aggregate is not None]
    if not own:
        return JudgedAggregates(verdicts={})
    known = means_of(context.run_context.records) if context.run_context.means is None else context.run_context.means
    everything = {result.benchmark: _points(context, result, known) for result in own}
    left_out = _lost_together(context, everything.values())
    series: dict[str, AggregateSeries] = {}
    verdicts: dict[str, Verdict] = {}
    for result in own:
        name = result.benchmark
        points = everything[name].without(left_out)
        if points.steps.size == 1:
            verdicts[name] = _verdict_of(result, *_alone(context, result))
            continue
        try:
            series[name] = _series(points, result, context.policy)
        except BadData as problem:
            reason = reasons.NotOfAScore(problem=problem.message)
            verdicts[name] = _verdict_of(result, VerdictWord.INCONCLUSIVE, reason)
    level = budget_of(context, alpha_of_benchmarks(context))
    tests = dict(zip(series, aggregate_evidence(tuple(series.values()), context.step, level), strict=True))
    results = {result.benchmark: result for result in own}
    verdicts |= {name: _verdict(context, results[name], one, tests[name]) for name, one in series.items()}
    parts: list[Part] = []
    for name, one in series.items():
        if had_something_to_lose(one, tests[name]):
            parts.append(_part(one, tests[name], results[name], everything[name]))
    return JudgedAggregates(verdicts=verdicts, parts=tuple(parts))


def had_something_to_lose(series: AggregateSeries, found: Sequence[Evidence]) -> bool:
    """Return whether the baseline block is above guessing, so that there was something to lose.

    Guessing is `chance` if it is known, and the first block if the run starts untrained (at step 0) or chance is
    unknown. If there are both, the block must be above both: by 2 points and p < .01, corrected for its selection. The
    block is the peak or, before there is one, the recent checkpoints.
    """
    best = max(found, key=lambda e: e.blocks.baseline is Baseline.PEAK, default=None)
    if best is None:
        return False
    block, rises = best.blocks.base, []
    if series.chance is not None:
        rises.append(level_test(series, block, series.chance, best.jitter))
    if series.chance is None or series.steps[0] == 0:
        rises.append(blocks_test(series, block, np.arange(block.size), best.jitter))
    return all(is_learned(rise, best.blocks.selected_from) for rise in rises)


def _points(context: JudgingContext, result: EvalResult, known: Means) -> MeanSeries:
    """Return the points up to the candidate, without those before an accepted level."""
    accepted = context.acceptances_of(result.benchmark)
    since = max((a.from_step for a in accepted if a.step <= context.step), default=0)
    (key,) = series_keys(context.record.plan, [result])
    before = known[key].between(since, context.step) if key in known else NO_MEANS
    if result.aggregate is None:
        return before
    return before.with_point(context.step, result.aggregate)


def _series(points: MeanSeries, result: EvalResult, policy: Policy) -> AggregateSeries:
    means, chance = points.means, policy.chance.get(result.benchmark)
    if not result.higher_is_better:
        means, chance = 1.0 - means, None if chance is None else 1.0 - chance
    return AggregateSeries(steps=points.steps, means=means, stderrs=points.stderrs, chance=chance)


def _lost_together(context: JudgingContext, series: Iterable[MeanSeries]) -> set[int]:
    """Return the steps of earlier checkpoints at which all benchmarks together were lower, and are back."""
    steps = sorted({step for one in series for step in one.steps.tolist()})
    counts = counting(steps, context.incidents_of(context.suite), ())
    return {step for step, is_in in zip(steps, counts, strict=True) if not is_in}


def _part(series: AggregateSeries, tests: tuple[Evidence, ...], result: EvalResult, points: MeanSeries) -> Part:
    means = points.means if result.higher_is_better else 1.0 - points.means
    return Part(
        name=result.benchmark,
        means=dict(zip(points.steps.tolist(), means.tolist(), strict=True)),
        counted=tuple(series.steps.tolist()),
        evidence=tests,
        is_whole=True,
        has_samples=False,
    )


def _verdict(
    context: JudgingContext, result: EvalResult, series: AggregateSeries, tests: tuple[Evidence, ...]
) -> Verdict:
    thresholds = thresholds_of(context.policy)
    word, has_learned = word_of(tests, thresholds), had_something_to_lose(series, tests)
    if series.chance is not None and not has_learned and word not in _BETTER:
        never = reasons.NeverAboveChance(chance=context.policy.chance[result.benchmark])
        return _verdict_of(result, VerdictWord.NOT_LEARNED, never)
    is_guessing = word is VerdictWord.REGRESSED and not has_learned
    reason = _compared_means(series, _deciding(word, tests, thresholds), result)
    return _verdict_of(result, at_most_suspect(word), replace(reason, never_above_chance=is_guessing))


def _deciding(word: VerdictWord, tests: Sequence[Evidence], thresholds: Thresholds) -> Evidence:
    if word is VerdictWord.REGRESSED:
        return min(losses(tests, thresholds), key=lambda e: e.p_worse)
    if word is VerdictWord.SUSPECT:
        return min(suspects(tests, thresholds), key=lambda e: e.p_worse)
    if word is VerdictWord.IMPROVED:
        return min(gains(tests, thresholds), key=lambda e: e.p_better)
    if word is VerdictWord.RISING:
        return min(rises(tests, thresholds), key=lambda e: e.p_better)
    if word is VerdictWord.EQUIVALENT:
        return max((e for e in tests if e.m <= EQUIVALENCE_POOLED), key=lambda e: e.m)
    return tests[0]


def _alone(context: JudgingContext, result: EvalResult) -> tuple[VerdictWord, reasons.Reason]:
    """Return the verdict on a result that nothing can be compared with, and the reason."""
    plan = max(_plans_before(context, result.benchmark), key=lambda p: p.checkpoint.step, default=None)
    if plan is None:
        return VerdictWord.FIRST, reasons.NothingEarlier()
    differences = differences_of(context.record.plan, plan, result.benchmark)
    return VerdictWord.INCOMPARABLE, reasons.MeasuredOtherwise(step=plan.checkpoint.step, differences=differences)


def _plans_before(context: JudgingContext, benchmark: str) -> Iterator[EvalPlan]:
    """Yield the plans of lower steps with a result of `benchmark`, whatever the settings."""
    suite = context.record.plan.suite.name
    for record in context.run_context.records:
        is_before = record.plan.checkpoint.step < context.step and record.plan.suite.name == suite
        if is_before and any(isinstance(o, EvalResult) and o.benchmark == benchmark for o in record.outcomes):
            yield record.plan


def _compared_means(series: AggregateSeries, shown: Evidence, result: EvalResult) -> reasons.ComparedMeans:
    low, high = shown.test.interval()
    return reasons.ComparedMeans(
        before=_mean(series, shown.blocks.base, result),
        now=_mean(series, shown.blocks.new, result),
        pooled=shown.m,
        baseline_steps=tuple(int(series.steps[row]) for row in shown.blocks.base),
        is_peak=shown.blocks.baseline is Baseline.PEAK,
        ci_low=low,
        ci_high=high,
        p=min(shown.p_worse, shown.p_better),
        never_above_chance=False,
    )


def _mean(series: AggregateSeries, rows: IntArray, result: EvalResult) -> float:
    mean = float(series.means[rows].mean())
    if result.higher_is_better:
        return mean
    return 1.0 - mean


def _verdict_of(result: EvalResult, word: VerdictWord, reason: reasons.Reason) -> Verdict:
    known = summarise(result)
    return Verdict(
        benchmark=result.benchmark,
        word=word,
        reason=reason,
        score=known.mean,
        stderr=known.stderr,
        units=known.units,
        coverage=known.coverage,
        alpha_test=0.0,
    )
