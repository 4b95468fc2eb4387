"""Two runs side by side, step by step: scores, paired differences, best checkpoints, latency and cost. Pure.

A difference is B minus A over the same samples; up is better. Its interval covers the choice of the samples, but not
the noise of training: with another seed both curves differ.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from statistics import median

import numpy as np

from eval_jobs.errors import ConfigError
from eval_jobs.types import Cost, EvalRecord, ProbeResult
from tracker.domain.best.choice import Best, best_by_benchmark, best_of
from tracker.domain.compare.run_pairs import PairedDifference, ScoreAt, SeriesPair, pair_of, score_at
from tracker.domain.compare.view import RefusedBenchmark
from tracker.domain.latency.series import probe_of, quantile_of, series_of
from tracker.domain.records.losses import Incident
from tracker.domain.records.reasons import Difference
from tracker.domain.records.types import CurvePoint, LatencyMetric
from tracker.domain.scores.pairing import explain_difference, neutral_differences
from tracker.domain.scores.run_scores import RunScores
from tracker.domain.scores.series import BenchmarkSeries

TOKEN_KEYS = ("train/num_input_tokens_seen", "train/num_tokens")
"""Training tokens so far, in the curves of Hugging Face's trainer and of TRL."""


class By(StrEnum):
    """What makes two checkpoints of different runs equal."""

    STEP = "step"
    TOKENS = "tokens"


EQUAL_WITHIN = {By.STEP: 0.0, By.TOKENS: 0.02}
"""Share of the larger number by which equal checkpoints may differ: batches have different numbers of tokens."""


@dataclass(frozen=True, kw_only=True)
class RunToCompare:
    """What is known of one run, without the checkpoints that a rewind discarded."""

    scores: RunScores
    records: tuple[EvalRecord, ...]
    """Ordered by step; without samples."""
    incidents: tuple[Incident, ...] = ()
    """Losses of its benchmarks."""
    cost: Cost | None = None
    """Of all its evaluations; None: unknown."""
    tokens: Mapping[int, float] = field(default_factory=dict)
    """Training tokens so far by step, as logged by the trainer."""

    def tokens_at(self, steps: Sequence[int]) -> list[float | None]:
        """Return the training tokens until each step, interpolated between the trainer's log rows; None: unknown."""
        if not self.tokens:
            return [None] * len(steps)
        known = {0: 0.0, **self.tokens}
        last, newest = max(self.tokens), max(steps, default=0)
        if newest > last:  # saved after the last row
            known[newest] = known[last] * newest / last
        logged = sorted(known)
        at: list[float | None] = np.interp(steps, logged, [known[step] for step in logged]).tolist()
        return at


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """Equal checkpoints of both runs; None: the run has none with a score."""

    a: ScoreAt | None
    b: ScoreAt | None
    difference: PairedDifference | None
    """None: a side is missing, or too few samples have a score on both sides."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkOfRuns:
    """One benchmark, measured alike in both runs."""

    benchmark: str
    metric: str
    higher_is_better: bool
    rows: tuple[SideBySide, ...]
    """All checkpoints that were evaluated on the whole benchmark, ascending."""
    mean: PairedDifference | None
    """Over all rows with a difference."""
    best: SideBySide
    """The best checkpoint of each run on this benchmark (`best.choice`)."""


@dataclass(frozen=True, kw_only=True)
class LoadLatency:
    """Latency of a run under one load: medians over its checkpoints of their medians; None: not measured."""

    load: str
    ttft_ms: float | None
    tpot_ms: float | None


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """One run as a whole."""

    run_id: str
    steps: tuple[int, ...]
    """Evaluated steps, ascending."""
    best_step: int | None
    """The best checkpoint over the suite (`best.choice`); None: none has a score for all benchmarks."""
    latency: tuple[LoadLatency, ...]
    """Of the checkpoints that were measured like the newest one."""
    cost: Cost | None


@dataclass(frozen=True, kw_only=True)
class RunComparison:
    """Result of `tracker compare` for two runs."""

    a: RunSummary
    b: RunSummary
    by: By
    benchmarks: tuple[BenchmarkOfRuns, ...]
    refused: tuple[RefusedBenchmark, ...]
    is_latency_alike: bool
    """Whether the latencies are of the same loads, machine, engine and serving settings."""
    neutral: tuple[Difference, ...] = ()
    """Settings that differ at the newest checkpoints and cannot change a score."""


def compare_runs(a: RunToCompare, b: RunToCompare, *, min_coverage: float, by: By = By.STEP) -> RunComparison:
    """Compare every benchmark that both runs measured alike, B minus A; the others are refused with the reasons.

    Raises:
        ConfigError: `by` is tokens, and a trainer logged none.
    """
    for run in (a, b):
        if by is By.TOKENS and not run.tokens:
            hint = "compare by step, or set include_num_input_tokens_seen in the trainer"
            raise ConfigError(f"the trainer of {run.scores.run_id} logged no token counts", hint=hint)
    best_a, best_b = (
        best_by_benchmark(run.scores, incidents=run.incidents, min_coverage=min_coverage) for run in (a, b)
    )
    compared: list[BenchmarkOfRuns] = []
    refused: list[RefusedBenchmark] = []
    for name in dict.fromkeys([*_planned(a), *_planned(b)]):
        pair = pair_of(a.scores.of(name), b.scores.of(name))
        if pair is None:
            refused.append(_refused(name, a, b))
            continue
        curve_a, curve_b = _curve_of(a, pair.a, min_coverage), _curve_of(b, pair.b, min_coverage)
        best = _side_by_side(pair, _at_best(curve_a, best_a.get(name)), _at_best(curve_b, best_b.get(name)))
        compared.append(_compared(pair, _matched(curve_a, curve_b, by), best))
    return RunComparison(
        a=_summary_of(a, min_coverage),
        b=_summary_of(b, min_coverage),
        by=by,
        benchmarks=tuple(compared),
        refused=tuple(refused),
        is_latency_alike=_latency_settings(a) == _latency_settings(b),
        neutral=_neutral(a, b),
    )


def tokens_of(curves: Iterable[CurvePoint]) -> dict[int, float]:
    """Return the training tokens so far by step from a trainer's curves; empty if it logged none."""
    found: dict[str, dict[int, float]] = {key: {} for key in TOKEN_KEYS}
    for point in curves:
        if point.key in found and point.step > 0:
            found[point.key][point.step] = point.value
    return next(filter(None, found.values()), {})


def _curve_of(run: RunToCompare, series: BenchmarkSeries, min_coverage: float) -> tuple[ScoreAt, ...]:
    clusters = series.samples.clusters
    rows = series.whole_rows(min_coverage).tolist()
    tokens = run.tokens_at([series.steps[row] for row in rows])
    return tuple(replace(score_at(series, row, clusters), tokens=at) for row, at in zip(rows, tokens, strict=True))


def _planned(run: RunToCompare) -> Iterator[str]:
    yield from run.scores.benchmarks()
    for record in run.records:
        for outcome in record.outcomes:
            yield outcome.benchmark


def _compared(
    pair: SeriesPair, matched: Sequence[tuple[ScoreAt | None, ScoreAt | None]], best: SideBySide
) -> BenchmarkOfRuns:
    rows: list[SideBySide] = []
    equal: list[tuple[int, int]] = []
    for a, b in matched:
        row = _side_by_side(pair, a, b)
        rows.append(row)
        if a and b and row.difference:
            equal.append((a.step, b.step))
    return BenchmarkOfRuns(
        benchmark=pair.a.key.benchmark,
        metric=pair.a.metric,
        higher_is_better=pair.a.higher_is_better,
        rows=tuple(rows),
        mean=pair.difference(equal),
        best=best,
    )


def _side_by_side(pair: SeriesPair, a: ScoreAt | None, b: ScoreAt | None) -> SideBySide:
    if a is None or b is None:
        return SideBySide(a=a, b=b, difference=None)
    return SideBySide(a=a, b=b, difference=pair.difference([(a.step, b.step)]))


def _at_best(curve: Sequence[ScoreAt], best: Best | None) -> ScoreAt | None:
    step = None if best is None else best.checkpoint.step
    return next((one for one in curve if one.step == step), None)


def _matched(of_a: Sequence[ScoreAt], of_b: Sequence[ScoreAt], by: By) -> list[tuple[ScoreAt | None, ScoreAt | None]]:
    """Return equal checkpoints in pairs, each with its nearest, and the others alone, ascending."""
    rows: list[tuple[ScoreAt | None, ScoreAt | None]] = []
    a, b = list(of_a), list(of_b)
    while a and b:
        if _is_alone(a, b[0], by):
            rows.append((a.pop(0), None))
        elif _is_alone(b, a[0], by):
            rows.append((None, b.pop(0)))
        else:
            rows.append((a.pop(0), b.pop(0)))
    return [*rows, *((one, None) for one in a), *((None, one) for one in b)]


def _is_alone(left: Sequence[ScoreAt], other: ScoreAt, by: By) -> bool:
    """Return whether the first of `left` is too far before `other`, or the second is nearer to it."""
    place = position_of(other, by)
    gap = place - position_of(left[0], by)
    if gap <= 0:
        return False
    if gap > EQUAL_WITHIN[by] * place:
        return True
    return len(left) > 1 and abs(position_of(left[1], by) - place) < gap


def position_of(one: ScoreAt, by: By) -> float:
    """Return the step of a checkpoint, or its number of training tokens."""
    if by is By.TOKENS:
        return one.tokens or 0.0
    return one.step


def _refused(name: str, a: RunToCompare, b: RunToCompare) -> RefusedBenchmark:
    reasons = [f"no samples with a score in {run.scores.run_id}" for run in (a, b) if not run.scores.of(name)]
    if reasons:
        return RefusedBenchmark(benchmark=name, reasons=tuple(reasons), is_missing=True)
    old, new = (run.scores.of(name)[-1].plans[-1] for run in (a, b))
    runs = f"({b.scores.run_id}, {a.scores.run_id})"
    reasons = [f"{text} {runs}" for text in explain_difference(new, old, name)]
    return RefusedBenchmark(benchmark=name, reasons=tuple(reasons))


def _neutral(a: RunToCompare, b: RunToCompare) -> tuple[Difference, ...]:
    if a.records and b.records:
        return neutral_differences(b.records[-1].plan, a.records[-1].plan)
    return ()


def _summary_of(run: RunToCompare, min_coverage: float) -> RunSummary:
    best = best_of(run.scores, incidents=run.incidents, min_coverage=min_coverage)
    return RunSummary(
        run_id=run.scores.run_id,
        steps=tuple(sorted({record.plan.checkpoint.step for record in run.records})),
        best_step=None if best is None else best.checkpoint.step,
        latency=tuple(_latencies(run)),
        cost=run.cost,
    )


def _timed(run: RunToCompare) -> list[EvalRecord]:
    """Return the records whose latency was measured like that of the newest one, which is the last."""
    timed = [record for record in run.records if record.probes]
    return [record for record in timed if series_of(record) == series_of(timed[-1])]


def _latency_settings(run: RunToCompare) -> object:
    return [(series_of(record), {probe.load for probe in record.probes}) for record in _timed(run)[-1:]]


def _latencies(run: RunToCompare) -> Iterator[LoadLatency]:
    timed = _timed(run)
    if not timed:
        return
    for load in (probe.load for probe in timed[-1].probes):
        # A step may have been measured again: its last measurement counts.
        by_step = {record.plan.checkpoint.step: probe_of(record, load) for record in timed}
        ttft_ms, tpot_ms = (_median_ms(by_step.values(), metric) for metric in (LatencyMetric.TTFT, LatencyMetric.TPOT))
        yield LoadLatency(load=load.name, ttft_ms=ttft_ms, tpot_ms=tpot_ms)


def _median_ms(probes: Iterable[ProbeResult | None], metric: LatencyMetric) -> float | None:
    known: list[float] = []
    for probe in probes:
        if probe is not None:
            known += filter(None, [quantile_of(probe, metric, 0.5)])
    if known:
        return median(known)
    return None
