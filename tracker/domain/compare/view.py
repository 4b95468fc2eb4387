"""Comparison of two checkpoints for `tracker compare A B`: changes, their significance, and examples. Pure.

The comparison never raises an alarm: its level is shared by the benchmarks it shows, not by a whole run.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from eval_jobs.errors import Incomparable
from eval_jobs.types import BenchmarkFailure, EvalRecord, EvalResult, Outcome
from tracker.domain.calibration.noise import decoding_variance, repetition_of
from tracker.domain.compare.examples import Example, examples_of
from tracker.domain.compare.unpaired import HINT, lacks_samples, unpaired_text
from tracker.domain.records.calibration import Calibration, Repetition
from tracker.domain.records.policy import Policy
from tracker.domain.records.reasons import Difference
from tracker.domain.records.types import Baseline, Comparison, Verdict, VerdictWord
from tracker.domain.regression.jitter import Jitter
from tracker.domain.regression.pooled_test import PooledTest, independent, pooled_test
from tracker.domain.scores.matrix import Contrast
from tracker.domain.scores.pairing import (
    Pairing,
    explain_difference,
    measured_alike,
    neutral_differences,
    pair,
    served_alike,
)
from tracker.domain.scores.series import SeriesKey, series_key
from tracker.domain.scores.statistics.paired import PairedTest, Spread, paired_test, tost_p
from tracker.domain.scores.summary import ScoreSummary, summarise
from tracker.domain.verdicts.candidates import thresholds_of
from tracker.domain.verdicts.decision import MIN_COMMON
from tracker.domain.verdicts.hypothesis import word_of_pair


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two checkpoints."""

    run_id: str
    step: int
    digest: str
    source_uri: str
    evaluated_at: datetime | None = None
    """End of the evaluation. None: unknown."""
    engine: str = ""
    """Name and version. Empty: unknown."""


@dataclass(frozen=True, kw_only=True)
class ComparedBenchmark:
    """One benchmark on both sides. `comparison` is oriented: up is better, delta is after minus before.

    Its p-values and interval include jitter and decoding noise where they are known; `p_worse_items` does not.
    """

    benchmark: str
    metric: str
    higher_is_better: bool
    before: ScoreSummary
    after: ScoreSummary
    comparison: Comparison
    is_jitter_unknown: bool
    """Whether the run of the candidate does not show its jitter: p-values and interval are from samples alone."""
    spread: Spread
    """From the samples alone."""
    spread_of_run: Spread
    """The same with the known noise of jitter and decoding: basis of the interval and of equivalence."""
    word: VerdictWord
    """REGRESSED, IMPROVED, EQUIVALENT, SUSPECT or INCONCLUSIVE, at alpha / benchmarks shown, jitter included."""
    repetition: Repetition | None
    """Effect of repeating the evaluation alone; None if not calibrated."""
    lost: tuple[Example, ...]
    """Largest losses first."""
    gained: tuple[Example, ...]


@dataclass(frozen=True, kw_only=True)
class RefusedBenchmark:
    """A benchmark that cannot be compared, with all reasons."""

    benchmark: str
    reasons: tuple[str, ...]
    is_missing: bool = False
    """True if a side has no result or no samples, or too few samples have a score on both sides."""


@dataclass(frozen=True, kw_only=True)
class RunNoise:
    """Noise of a run: why two checkpoints differ although nothing was lost."""

    jitters: Mapping[SeriesKey, Jitter] = field(default_factory=dict)
    """Jitter of the candidate's run, by series (`candidates.known_jitter`)."""
    calibrations: tuple[Calibration, ...] = ()
    """Calibrations of all runs."""


@dataclass(frozen=True, kw_only=True)
class ComparisonView:
    """Result of `tracker compare`."""

    before: Side
    after: Side
    benchmarks: tuple[ComparedBenchmark, ...]
    refused: tuple[RefusedBenchmark, ...]
    neutral: tuple[Difference, ...] = ()
    """Settings that differ and cannot change a score."""
    run: tuple[Verdict, ...] = ()
    """The run's verdicts on the later checkpoint; empty if the other one is of another run."""


def compare_parts(
    parts: Iterable[tuple[EvalRecord, EvalRecord]], policy: Policy, noise: RunNoise, *, examples: int | None = 3
) -> ComparisonView:
    """Compare two records in pairs of parts that have other benchmarks each: one pair at a time is in memory.

    Both need their samples, and their texts for examples. The policy's alpha is shared by the benchmarks that can be
    compared. `noise` is that of the run of the later record, `examples` the number of changed samples in each
    direction, None: all.

    Raises:
        Incomparable: no benchmark can be compared; the message gives the reasons.
    """
    found, are_means = [], True
    for before, after in parts:
        found.append(_part(before, after, policy, noise, examples))
        are_means = are_means and all(one.aggregate is not None for one in (*before.results, *after.results))
    view = _joined(found, policy)
    if not view.benchmarks:
        raise _nothing_comparable(view, are_means=are_means)
    return view


def compare_what_can_be(
    before: EvalRecord, after: EvalRecord, policy: Policy, noise: RunNoise, *, examples: int | None = 3
) -> ComparisonView:
    """Compare like `compare_parts`, but return an empty result if no benchmark can be compared."""
    return _joined([_part(before, after, policy, noise, examples)], policy)


_NAMED = 8
"""Maximum number of benchmarks in the error message if none can be compared."""


@dataclass(frozen=True, kw_only=True)
class _Possible:
    before: EvalResult
    after: EvalResult
    pairing: Pairing
    steps: tuple[int, int]
    jitter: Jitter | None = None
    is_jitter_unknown: bool = False
    repetition: Repetition | None = None


def _part(
    before: EvalRecord, after: EvalRecord, policy: Policy, noise: RunNoise, examples: int | None
) -> ComparisonView:
    """Return the comparison of some of the benchmarks. Its words are preliminary, as all benchmarks share alpha."""
    names = dict.fromkeys(outcome.benchmark for outcome in (*after.outcomes, *before.outcomes))
    compared, refused = [], []
    for name in names:
        one = _try(name, before, after)
        if isinstance(one, RefusedBenchmark):
            refused.append(one)
            continue
        # The same weights evaluated twice, perhaps by another engine: no difference is due to training.
        is_trained = after.plan.checkpoint.digest != before.plan.checkpoint.digest
        jitter = noise.jitters.get(series_key(after.plan, one.after)) if is_trained else None
        one = replace(one, jitter=jitter, is_jitter_unknown=is_trained and jitter is None)
        repetition = repetition_of(noise.calibrations, after, name, min_effect=policy.min_effect)
        compared.append(_compared(replace(one, repetition=repetition), examples))
    return ComparisonView(
        before=_side(before),
        after=_side(after),
        benchmarks=tuple(compared),
        refused=tuple(refused),
        neutral=neutral_differences(after.plan, before.plan),
    )


def _joined(parts: Sequence[ComparisonView], policy: Policy) -> ComparisonView:
    compared = [one for part in parts for one in part.benchmarks]
    alpha_test, margin = policy.alpha / max(1, len(compared)), policy.equivalence_margin
    words = (
        word_of_pair(one.comparison, tost_p(one.spread_of_run, margin), alpha_test, thresholds_of(policy))
        for one in compared
    )
    return replace(
        parts[0],
        benchmarks=tuple(replace(one, word=word) for one, word in zip(compared, words, strict=True)),
        refused=tuple(one for part in parts for one in part.refused),
        neutral=tuple(dict.fromkeys(one for part in parts for one in part.neutral)),
    )


def _try(name: str, before: EvalRecord, after: EvalRecord) -> _Possible | RefusedBenchmark:
    left, right = _outcome(before, name), _outcome(after, name)
    if not (isinstance(left, EvalResult) and isinstance(right, EvalResult)):
        reasons = (*_unusable(left, before), *_unusable(right, after))
        return RefusedBenchmark(benchmark=name, reasons=reasons, is_missing=True)
    steps = (before.plan.checkpoint.step, after.plan.checkpoint.step)
    alike = served_alike(after.plan, before.plan) and measured_alike(after, before, name)
    if lacks_samples(left, right):
        means = unpaired_text(left, right, steps=steps, alike=alike)
        return RefusedBenchmark(benchmark=name, reasons=(means,), is_missing=True)
    if not alike:
        reasons = explain_difference(after.plan, before.plan, name, metrics=(right.metric, left.metric))
        return RefusedBenchmark(benchmark=name, reasons=reasons)
    left, right = on_common_questions(left, right)
    pairing = pair(right, left)
    if pairing.common_fraction >= MIN_COMMON:
        return _Possible(before=left, after=right, pairing=pairing, steps=steps)
    common = f"{len(pairing.sample_ids)} of {pairing.planned} samples scored on both sides"
    return RefusedBenchmark(
        benchmark=name, reasons=(f"only {common} ({100 * MIN_COMMON:.0f} % required)",), is_missing=True
    )


def on_common_questions(left: EvalResult, right: EvalResult) -> tuple[EvalResult, EvalResult]:
    """Return both unchanged or, if one of them covers only a part, limited to the questions in both."""
    if not (left.left_out or right.left_out):
        return left, right
    common = {s.sample_id for s in left.samples} & {s.sample_id for s in right.samples}
    return _over(left, common), _over(right, common)


def _over(result: EvalResult, samples: Collection[str]) -> EvalResult:
    return replace(result, samples=tuple(s for s in result.samples if s.sample_id in samples))


def _outcome(record: EvalRecord, name: str) -> Outcome | None:
    return next((o for o in record.outcomes if o.benchmark == name), None)


def _unusable(outcome: Outcome | None, record: EvalRecord) -> tuple[str, ...]:
    step = record.plan.checkpoint.step
    if outcome is None:
        return (f"not evaluated at step {step}",)
    if isinstance(outcome, BenchmarkFailure):
        return (f"no result at step {step}: {outcome.message} ({outcome.code})",)
    return ()


def _nothing_comparable(view: ComparisonView, *, are_means: bool) -> Incomparable:
    named = [f"{r.benchmark}: {', '.join(r.reasons)}" for r in view.refused[:_NAMED]]
    if len(view.refused) > _NAMED:
        named.append(f"and {len(view.refused) - _NAMED} more")
    hint = "evaluate both checkpoints with the same tracker.toml: `tracker evaluate CHECKPOINT`"
    return Incomparable(
        f"no comparable benchmark at steps {view.before.step} and {view.after.step}: "
        f"{'; '.join(named) or 'neither has results'}",
        hint=HINT if are_means and named else hint,
    )


def _side(record: EvalRecord) -> Side:
    c = record.plan.checkpoint
    engine = record.engine
    return Side(
        run_id=c.run_id,
        step=c.step,
        digest=c.digest,
        source_uri=c.source_uri,
        evaluated_at=record.finished_at,
        engine="" if engine is None else f"{engine.name} {engine.version}",
    )


def _compared(possible: _Possible, examples: int | None) -> ComparedBenchmark:
    pairing, result = possible.pairing, possible.after
    test = paired_test(pairing.candidate, pairing.baseline, pairing.clusters)
    pooled = _pooled(test, possible)
    lost, gained = examples_of(possible.before, result, pairing, examples)
    return ComparedBenchmark(
        benchmark=result.benchmark,
        metric=result.metric,
        higher_is_better=result.higher_is_better,
        before=summarise(possible.before),
        after=summarise(result),
        comparison=_comparison(possible, test, pooled),
        is_jitter_unknown=possible.is_jitter_unknown,
        spread=test.spread,
        spread_of_run=_widened(test, pooled),
        word=VerdictWord.INCONCLUSIVE,
        repetition=possible.repetition,
        lost=lost,
        gained=gained,
    )


def _pooled(test: PairedTest, possible: _Possible) -> PooledTest | None:
    """Return the test with jitter and decoding noise included; None if neither is known."""
    decoding = decoding_variance(possible.repetition)
    if possible.jitter is None and not decoding:
        return None
    jitter = possible.jitter or Jitter(tau2=0.0, variance=0.0)
    # The variance is known as well as its degrees of freedom say: those of a few clusters, not of all samples.
    units = test.n if math.isinf(test.spread.df) else max(2, round(test.spread.df) + 1)
    moment = Contrast(delta=test.delta, item_variance=test.stderr**2, n=units, common_fraction=1.0)
    # Each of the two evaluations has its own decoding noise: a lower bound for what their flips show.
    least = 2 * (decoding / test.n + jitter.tau2)
    return pooled_test(moment, jitter, independent(1, 1)).with_variance_of_at_least(least)


def _widened(test: PairedTest, pooled: PooledTest | None) -> Spread:
    """Return the spread of the samples plus the extra variance of `pooled`, with the heavier tails of the two."""
    if pooled is None:
        return test.spread
    beyond = math.sqrt(max(pooled.variance - test.stderr**2, 0.0))
    stderr, cautious = (math.hypot(own, beyond) for own in (test.spread.stderr, test.spread.cautious))
    return replace(test.spread, stderr=stderr, cautious=cautious, df=min(test.spread.df, pooled.df))


def _comparison(possible: _Possible, test: PairedTest, pooled: PooledTest | None) -> Comparison:
    low, high = replace(test, spread=_widened(test, pooled)).interval
    p_worse, p_better, stderr = test.p_worse, test.p_better, test.stderr
    if pooled is not None:
        stderr = max(stderr, math.sqrt(pooled.variance))
        p_worse, p_better = max(p_worse, pooled.p_worse()), max(p_better, pooled.p_better())
    before, after = possible.steps
    return Comparison(
        baseline=Baseline.GIVEN,
        baseline_steps=(before,),
        pooled_steps=(after,),
        n_common=test.n,
        common_fraction=possible.pairing.common_fraction,
        delta=test.delta,
        stderr=stderr,
        ci_low=low,
        ci_high=high,
        p_worse=p_worse,
        p_better=p_better,
        p_worse_items=test.p_worse,
        jitter=0.0 if possible.jitter is None else math.sqrt(possible.jitter.tau2),
        n_lost=test.n_lost,
        n_gained=test.n_gained,
        method=test.method,
    )
