"""One benchmark of one suite along a run, with the same settings: checkpoints x samples, as bytes. Pure.

series = empty_series(series_key(plan, result), result, Measure)
means = sample_means_of(columns, series.asked)
row = row_of(record, result, coverage=columns.coverage, asked=means.questions)
series = with_row(series, row, values_of(series, means, plan))     # one more checkpoint, of any step
series.matrices[Measure.SCORE], series.subsets, series.sample_ids, series.steps
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import TypeVar

import numpy as np

from eval_jobs.identity import series_fingerprints, series_serving_hash
from eval_jobs.types import EvalPlan, EvalRecord, EvalResult, Outcome
from tracker.domain.records.losses import Measure
from tracker.domain.scores.matrix import (
    BoolArray,
    FloatArray,
    IntArray,
    ScoreMatrix,
    empty_matrix,
    inserted,
    rearranged,
    without_rows,
)
from tracker.domain.scores.sample_columns import Questions, SampleColumns, averaged, in_order_of, object_array

T = TypeVar("T")

Rank = tuple[datetime, bool, datetime, str]

Values = Mapping[Measure, FloatArray]
"""Values of one checkpoint, in the order of its questions; higher is better, NaN: no score."""


@dataclass(frozen=True, kw_only=True)
class SeriesKey:
    """Key of a series: only results with equal keys are compared."""

    benchmark: str
    fingerprint: str
    """`eval_jobs.identity.series_fingerprints`."""
    serving: str
    """`eval_jobs.identity.series_serving_hash`."""
    suite: str

    @property
    def settings(self) -> str:
        """Key of all settings that can change the scores."""
        return f"{self.fingerprint}-{self.serving}"


@dataclass(frozen=True, kw_only=True, eq=False)
class BenchmarkSeries:
    """One benchmark of one suite along a run, with the same settings: T checkpoints, n samples."""

    key: SeriesKey
    metric: str
    higher_is_better: bool
    plans: tuple[EvalPlan, ...]
    """T plans, ordered by step; one per step, of its newest record."""
    finished_at: tuple[datetime, ...]
    coverage: FloatArray
    """Shape (T,): answers with a score / answers planned."""
    asked: tuple[Questions, ...]
    """Questions of each checkpoint, every sample once."""
    left_out: IntArray
    """Shape (T,): samples of the benchmark not evaluated at each checkpoint, 0 unless it was screened."""
    samples: Questions
    """Questions of all checkpoints, in the order in which they were added."""
    matrices: Mapping[Measure, ScoreMatrix]
    """Checkpoints x samples, for each stored measure."""

    @cached_property
    def sample_ids(self) -> tuple[str, ...]:
        """IDs of all n samples."""
        return tuple(self.samples.sample_ids.tolist())

    @cached_property
    def subsets(self) -> tuple[str, ...]:
        """Subset of every sample."""
        return tuple(self.samples.subsets.tolist())

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """Steps of the checkpoints, ascending."""
        return tuple(plan.checkpoint.step for plan in self.plans)

    @property
    def is_whole(self) -> BoolArray:
        """Whether the whole benchmark was evaluated at each checkpoint, shape (T,)."""
        whole: BoolArray = self.left_out == 0
        return whole

    def row_of(self, step: int) -> int | None:
        """Return the row of a step, or None."""
        steps = self.steps
        if step in steps:
            return steps.index(step)
        return None

    def usable_rows(self, min_coverage: float) -> IntArray:
        """Return the rows with at least `min_coverage`, ascending."""
        return np.flatnonzero(self.coverage >= min_coverage)

    def whole_rows(self, min_coverage: float) -> IntArray:
        """Return the usable rows of checkpoints that were evaluated on the whole benchmark, ascending."""
        return np.flatnonzero((self.coverage >= min_coverage) & self.is_whole)


@dataclass(frozen=True, kw_only=True)
class SeriesRow:
    """One checkpoint of a series."""

    plan: EvalPlan
    finished_at: datetime
    coverage: float
    asked: Questions
    """Its questions, every sample once."""
    left_out: int
    """Samples of the benchmark that were not evaluated."""

    @property
    def rank(self) -> Rank:
        """Of two checkpoints of one step the higher one stays, in any order of insertion."""
        return _rank(self.plan, self.left_out, self.finished_at)


def series_key(plan: EvalPlan, result: EvalResult) -> SeriesKey:
    """Return the key of the series of `result` of `plan`."""
    return next(series_keys(plan, [result]))


def series_keys(plan: EvalPlan, results: Sequence[Outcome]) -> Iterator[SeriesKey]:
    """Yield the key of the series of each of `results` of one plan, or of failures in their place."""
    serving = series_serving_hash(plan.serve)
    for result, fingerprint in zip(results, series_fingerprints(plan, results), strict=True):
        yield SeriesKey(benchmark=result.benchmark, fingerprint=fingerprint, serving=serving, suite=plan.suite.name)


def settings_by_benchmark(record: EvalRecord) -> Mapping[str, str]:
    """Return the settings of each benchmark, as in `SeriesKey.settings`."""
    return {key.benchmark: key.settings for key in series_keys(record.plan, record.outcomes)}


def empty_series(key: SeriesKey, result: EvalResult, measures: Iterable[Measure]) -> BenchmarkSeries:
    """Return the series of `result` without any checkpoint, for `measures`."""
    return BenchmarkSeries(
        key=key,
        metric=result.metric,
        higher_is_better=result.higher_is_better,
        plans=(),
        finished_at=(),
        coverage=np.zeros(0),
        asked=(),
        left_out=np.zeros(0, dtype=np.int64),
        samples=all_asked(()),
        matrices={measure: empty_matrix(0) for measure in measures},
    )


def sample_means_of(columns: SampleColumns, known: Iterable[Questions]) -> SampleColumns:
    """Return every sample once; if an object of `known` has the same questions, use it and its order."""
    means = averaged(columns)
    for questions in _distinct(known):
        same = in_order_of(means, questions)
        if same is not None:
            return same
    return means


def row_of(record: EvalRecord, result: EvalResult, *, coverage: float, asked: Questions) -> SeriesRow:
    """Return one result of a record as a checkpoint of a series."""
    return SeriesRow(
        plan=record.plan,
        finished_at=record.finished_at,
        coverage=coverage,
        asked=asked,
        left_out=result.left_out,
    )


def values_of(series: BenchmarkSeries, means: SampleColumns, plan: EvalPlan) -> Values:
    """Return the values of a checkpoint for each measure of `series`."""
    return {measure: _oriented(measure, means, series, plan) for measure in series.matrices}


def with_row(series: BenchmarkSeries, row: SeriesRow, values: Values) -> BenchmarkSeries:
    """Return the series with one more checkpoint, of any step; of two at one step the higher rank stays."""
    step = row.plan.checkpoint.step
    position = series.row_of(step)
    if position is not None:
        known = int(series.left_out[position])
        if _rank(series.plans[position], known, series.finished_at[position]) > row.rank:
            return series
        series = less_rows(series, (position,))
    else:
        position = bisect_left(series.steps, step)
    series = _over_samples(series, all_asked((series.samples, row.asked)))
    n, place = series.samples.sample_ids.size, place_in(series.samples, row.asked)
    return replace(
        series,
        plans=_at(series.plans, position, row.plan),
        finished_at=_at(series.finished_at, position, row.finished_at),
        coverage=np.insert(series.coverage, position, row.coverage),
        asked=_at(series.asked, position, row.asked),
        left_out=np.insert(series.left_out, position, row.left_out),
        matrices={
            measure: inserted(matrix, position, _placed(values[measure], place, n))
            for measure, matrix in series.matrices.items()
        },
    )


def less_rows(series: BenchmarkSeries, positions: Sequence[int]) -> BenchmarkSeries:
    """Return the series without the rows at `positions`, and without samples evaluated only there."""
    asked = _less(series.asked, positions)
    left = replace(
        series,
        plans=_less(series.plans, positions),
        finished_at=_less(series.finished_at, positions),
        coverage=np.delete(series.coverage, positions),
        asked=asked,
        left_out=np.delete(series.left_out, positions),
        matrices={measure: without_rows(matrix, positions) for measure, matrix in series.matrices.items()},
    )
    return _over_samples(left, all_asked(asked))


def series_without_step(series: BenchmarkSeries, step: int) -> BenchmarkSeries:
    """Return the series without the checkpoint of a step."""
    row = series.row_of(step)
    if row is None:
        return series
    return less_rows(series, (row,))


def all_asked(asked: Iterable[Questions]) -> Questions:
    """Return all samples in the order of first appearance; the first object itself if the others add none."""
    distinct = [questions for questions in _distinct(asked) if questions.sample_ids.size]
    if len(distinct) == 1:
        return distinct[0]
    none = object_array(())
    union = Questions(
        sample_ids=np.concatenate([none, *(q.sample_ids for q in distinct)]),
        subsets=np.concatenate([none, *(q.subsets for q in distinct)]),
        cluster_ids=np.concatenate([none, *(q.cluster_ids for q in distinct)]),
    )
    if union.repeats is not None:
        union = union.repeats.once
    first = next(iter(distinct), union)
    if first.sample_ids.size == union.sample_ids.size:
        return first
    return union


def place_in(samples: Questions, asked: Questions) -> IntArray | None:
    """Return the index in `samples` of each of `asked`; None if both are the same object."""
    if asked is samples:
        return None
    index = {sample_id: at for at, sample_id in enumerate(samples.sample_ids.tolist())}
    return np.array([index[sample_id] for sample_id in asked.sample_ids.tolist()], dtype=np.int64)


def _rank(plan: EvalPlan, left_out: int, finished_at: datetime) -> Rank:
    """Return the rank: highest for the weights written last, as a checkpoint left behind may be measured later.

    Of the same weights, an evaluation of the whole benchmark ranks higher.
    """
    return plan.checkpoint.ready_at, left_out == 0, finished_at, plan.id


def _oriented(measure: Measure, means: SampleColumns, series: BenchmarkSeries, plan: EvalPlan) -> FloatArray:
    if measure is Measure.SCORE:
        if series.higher_is_better:
            return means.scores
        return 1.0 - means.scores
    if means.truncated is None or means.output_tokens is None:
        raise ValueError(f"the columns of {series.key.benchmark} have no {measure}")
    if measure is Measure.COMPLETENESS:
        return 1.0 - means.truncated
    own = next((b.max_tokens for b in plan.suite.benchmarks if b.name == series.key.benchmark), None)
    return 1.0 - means.output_tokens / (own or plan.suite.generation.max_tokens)


def _over_samples(series: BenchmarkSeries, samples: Questions) -> BenchmarkSeries:
    """Return the series over `samples`; samples that this removes must have no score at any checkpoint."""
    if samples is series.samples:
        return series
    index = {sample_id: at for at, sample_id in enumerate(series.samples.sample_ids.tolist())}
    ids = samples.sample_ids.tolist()
    sources = np.fromiter((index.get(sample_id, -1) for sample_id in ids), dtype=np.int64, count=len(ids))
    matrices = {measure: rearranged(matrix, sources) for measure, matrix in series.matrices.items()}
    return replace(series, samples=samples, matrices=matrices)


def _distinct(asked: Iterable[Questions]) -> tuple[Questions, ...]:
    return tuple({id(questions): questions for questions in asked}.values())


def _placed(values: FloatArray, place: IntArray | None, n_samples: int) -> FloatArray:
    if place is None:
        return values
    placed = np.full(n_samples, np.nan)
    placed[place] = values
    return placed


def _at(items: tuple[T, ...], position: int, item: T) -> tuple[T, ...]:
    return (*items[:position], item, *items[position:])


def _less(items: tuple[T, ...], positions: Sequence[int]) -> tuple[T, ...]:
    gone = set(positions)
    return tuple(item for at, item in enumerate(items) if at not in gone)
