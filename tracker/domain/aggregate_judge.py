"""What an imported checkpoint lost, where only means and standard errors are known. Pure.

    verdicts = judge_aggregates(scene)        # by benchmark; {} where every result has its samples

The words are those of `aggregate_verdict`: a loss is `suspect` at most, shown and never told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eval_jobs.errors import BadData
from eval_jobs.imported_types import Aggregate
from eval_jobs.types import EvalPlan, EvalRecord, EvalResult
from tracker.domain.aggregate_verdict import aggregate_word, capped, is_learned
from tracker.domain.display import score_text, steps_text
from tracker.domain.episodes import FORGOTTEN_AFTER
from tracker.domain.reasons import reason_for_first, reason_for_too_early, reason_for_unlike
from tracker.domain.regression.aggregates import AggregateSeries, aggregate_evidence
from tracker.domain.regression.budget import SCORE_SHARE
from tracker.domain.regression.detector import Evidence, Level
from tracker.domain.regression.score_matrix import IntArray
from tracker.domain.rules import EQUIVALENCE_POOLED, Thresholds, gains, losses, suspects
from tracker.domain.score_series import SeriesKey, series_key
from tracker.domain.scores import summarise
from tracker.domain.trials import Scene, thresholds_of
from tracker.domain.types import Baseline, Policy, Verdict, VerdictWord

_LOST = (VerdictWord.FORGOTTEN, VerdictWord.REGRESSED)


def judge_aggregates(scene: Scene) -> Mapping[str, Verdict]:
    """Return the verdicts on the results of the candidate that have no samples, by benchmark."""
    record = scene.record
    own = {o.benchmark: o for o in record.outcomes if isinstance(o, EvalResult) and o.aggregate is not None}
    if not own:
        return {}
    known = _points(scene)
    series: dict[str, AggregateSeries] = {}
    plain: dict[str, tuple[VerdictWord, str]] = {}
    for name, result in own.items():
        points = _counting(scene, name, known[series_key(record.plan, result)])
        if len(points) == 1:
            plain[name] = _alone(scene, result)
            continue
        try:
            series[name] = _series(points, result, scene.policy)
        except BadData as problem:
            plain[name] = VerdictWord.INCONCLUSIVE, problem.message
    judged = _judged(scene, series)
    return {name: judged[name] if name in judged else _told(result, *plain[name]) for name, result in own.items()}


# --- private

_Points = Mapping[SeriesKey, Mapping[int, Aggregate]]
"""Of every series by step, ascending."""


@dataclass(frozen=True, kw_only=True)
class _Case:
    """One benchmark at its newest three checkpoints."""

    series: AggregateSeries
    newest: tuple[tuple[Evidence, ...], ...]
    """Oldest first; the last one is the candidate's."""


def _points(scene: Scene) -> _Points:
    """Return what is known up to the candidate; the newest import of a step counts, and the candidate's own."""
    own, suite = scene.record, scene.record.plan.suite.name
    others = [r for r in scene.memory.records if r.plan.suite.name == suite and r.plan.checkpoint.step < scene.step]
    found: dict[SeriesKey, dict[int, Aggregate]] = {}
    for record in (*sorted(others, key=_order), own):
        for outcome in record.outcomes:
            if isinstance(outcome, EvalResult) and outcome.aggregate is not None:
                points = found.setdefault(series_key(record.plan, outcome), {})
                points[record.plan.checkpoint.step] = outcome.aggregate
    return found


def _order(record: EvalRecord) -> tuple[int, object, object, str]:
    checkpoint = record.plan.checkpoint
    return checkpoint.step, checkpoint.ready_at, record.finished_at, record.plan.id


def _counting(scene: Scene, benchmark: str, points: Mapping[int, Aggregate]) -> Mapping[int, Aggregate]:
    """Return the points without those before a level that somebody accepted."""
    accepted = (a for a in scene.memory.acceptances if a.benchmark == benchmark and a.step <= scene.step)
    since = max((a.from_step for a in accepted), default=0)
    return {step: point for step, point in points.items() if step >= since}


def _series(points: Mapping[int, Aggregate], result: EvalResult, policy: Policy) -> AggregateSeries:
    means = np.array([point.mean for point in points.values()])
    chance = policy.chance.get(result.benchmark)
    if not result.higher_is_better:
        means, chance = 1.0 - means, None if chance is None else 1.0 - chance
    errors = [np.nan if point.stderr is None else point.stderr for point in points.values()]
    return AggregateSeries(steps=np.array(list(points)), means=means, stderrs=np.array(errors), chance=chance)


def _judged(scene: Scene, series: Mapping[str, AggregateSeries]) -> dict[str, Verdict]:
    steps = sorted({int(step) for one in series.values() for step in one.steps})[-FORGOTTEN_AFTER:]
    level = Level(
        alpha=scene.policy.alpha * SCORE_SHARE, planned=scene.policy.planned_checkpoints, benchmarks=scene.benchmarks
    )
    found = [aggregate_evidence(tuple(series.values()), step, level) for step in steps]
    cases = {
        name: _Case(series=one, newest=newest)
        for (name, one), newest in zip(series.items(), zip(*found, strict=True), strict=True)
    }
    results = {o.benchmark: o for o in scene.record.outcomes if isinstance(o, EvalResult)}
    return {name: _verdict(scene, results[name], case) for name, case in cases.items()}


def _verdict(scene: Scene, result: EvalResult, case: _Case) -> Verdict:
    tests = case.newest[-1]
    if not tests:
        return _told(result, VerdictWord.INCONCLUSIVE, reason_for_too_early())
    thresholds = thresholds_of(scene.policy)
    learned = is_learned(case.series, tests)
    word = aggregate_word(case.newest, thresholds, learned=learned)
    shown = _deciding(word, tests, thresholds)
    reason = _reason(case.series, shown, result)
    if word in _LOST and not learned:
        reason += "; it never was above chance"
    return _told(result, capped(word), reason)


def _deciding(word: VerdictWord, tests: Sequence[Evidence], thresholds: Thresholds) -> Evidence:
    if word in _LOST:
        return min(losses(tests, thresholds), key=lambda e: e.p_worse)
    if word is VerdictWord.SUSPECT:
        return min(suspects(tests, thresholds), key=lambda e: e.p_worse)
    if word is VerdictWord.IMPROVED:
        return min(gains(tests, thresholds), key=lambda e: e.p_better)
    if word is VerdictWord.EQUIVALENT:
        return max((e for e in tests if e.m <= EQUIVALENCE_POOLED), key=lambda e: e.m)
    return tests[0]


def _alone(scene: Scene, result: EvalResult) -> tuple[VerdictWord, str]:
    """Return what is said of a result that has nothing to be compared with."""
    plan = max(_plans_before(scene, result.benchmark), key=lambda p: p.checkpoint.step, default=None)
    if plan is not None:
        return VerdictWord.INCOMPARABLE, reason_for_unlike(scene.record.plan, plan, result.benchmark)
    return VerdictWord.FIRST, reason_for_first(summarise(result).mean or 0.0)


def _plans_before(scene: Scene, benchmark: str) -> Iterator[EvalPlan]:
    """Yield the plans of lower steps that gave a result of a benchmark, measured in whatever way."""
    suite = scene.record.plan.suite.name
    for record in scene.memory.records:
        is_before = record.plan.checkpoint.step < scene.step and record.plan.suite.name == suite
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


def _told(result: EvalResult, word: VerdictWord, reason: str) -> Verdict:
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
