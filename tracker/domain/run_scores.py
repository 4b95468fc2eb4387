"""Everything that was scored along a run, in bytes: what verdicts, the ledger and curves are computed from. Pure.

    scores = with_record(scores, record, columns)     # one more record, wherever its step belongs
    for series in scores.of("sums"):                  # one series for each way in which it was measured
        series.matrix(Measure.SCORE)                  # checkpoints x samples
        series.subsets, series.sample_ids, series.steps

A record with samples as objects takes hundreds of bytes a sample; here a 0/1 score takes one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

import numpy as np

from eval_jobs.identity import content_hash, serve_settings
from eval_jobs.types import EvalPlan, EvalRecord, EvalResult
from tracker.domain.regression.score_matrix import (
    FloatArray,
    IntArray,
    ScoreMatrix,
    empty_matrix,
    inserted,
    widened,
    without_row,
)
from tracker.domain.sample_columns import SampleColumns, averaged
from tracker.domain.types import Measure

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class SeriesKey:
    """Only results with an equal key are compared."""

    benchmark: str
    fingerprint: str
    """`eval_jobs.identity.benchmark_fingerprint`."""
    serving: str
    """Hash of how the checkpoint was served."""
    suite: str


@dataclass(frozen=True, kw_only=True, eq=False)
class BenchmarkSeries:
    """One benchmark of one suite along a run, measured alike: T checkpoints, n samples."""

    key: SeriesKey
    metric: str
    higher_is_better: bool
    plans: tuple[EvalPlan, ...]
    """T plans, ordered by step; one step is there once, with its newest record."""
    finished_at: tuple[datetime, ...]
    coverage: FloatArray
    """Shape (T,): answers with a score / answers planned."""
    sample_ids: tuple[str, ...]
    subsets: tuple[str, ...]
    """Subset of every sample."""
    cluster_ids: tuple[str, ...]
    """Cluster of every sample; empty: its own."""
    matrices: Mapping[Measure, ScoreMatrix] = field(default_factory=dict)

    @property
    def steps(self) -> tuple[int, ...]:
        """Steps of the checkpoints, ascending."""
        return tuple(plan.checkpoint.step for plan in self.plans)

    def matrix(self, measure: Measure) -> ScoreMatrix:
        """Return checkpoints x samples of one measure."""
        return self.matrices[measure]

    def row_of(self, step: int) -> int | None:
        """Return the row of a step, or None."""
        steps = self.steps
        return steps.index(step) if step in steps else None

    def usable_rows(self, min_coverage: float, up_to_step: int | None = None) -> IntArray:
        """Return the rows whose coverage suffices, ascending, up to and including a step."""
        steps = np.array(self.steps, dtype=np.int64)
        usable = self.coverage >= min_coverage
        if up_to_step is not None:
            usable &= steps <= up_to_step
        return np.flatnonzero(usable)


@dataclass(frozen=True, kw_only=True, eq=False)
class RunScores:
    """All series of one run."""

    run_id: str
    series: Mapping[SeriesKey, BenchmarkSeries] = field(default_factory=dict)

    def of(self, benchmark: str, suite: str | None = None) -> tuple[BenchmarkSeries, ...]:
        """Return the series of a benchmark, the one with the newest checkpoint last."""
        found = [
            s for s in self.series.values() if s.key.benchmark == benchmark and (suite is None or s.key.suite == suite)
        ]
        return tuple(sorted(found, key=lambda s: (s.steps[-1], s.finished_at[-1])))

    def benchmarks(self) -> tuple[str, ...]:
        """Return the names of all benchmarks, in the order in which they appeared."""
        return tuple(dict.fromkeys(key.benchmark for key in self.series))


def series_key(plan: EvalPlan, result: EvalResult) -> SeriesKey:
    """Return what `result` of `plan` may be compared with."""
    return SeriesKey(
        benchmark=result.benchmark,
        fingerprint=result.fingerprint,
        serving=content_hash(serve_settings(plan.serve)),
        suite=plan.suite.name,
    )


def with_record(scores: RunScores, record: EvalRecord, columns: Mapping[str, SampleColumns]) -> RunScores:
    """Return the scores with one more record; an older record of the same step and settings gives way.

    Args:
        scores: of the same run.
        record: its samples are not looked at.
        columns: the samples of every result of `record`, by benchmark.
    """
    series = dict(scores.series)
    for outcome in record.outcomes:
        if isinstance(outcome, EvalResult) and columns[outcome.benchmark].sample_ids.size:
            key = series_key(record.plan, outcome)
            known = series.get(key) or _empty(key, outcome)
            series[key] = _with_result(known, record, columns[outcome.benchmark])
    return replace(scores, series=series)


# --- private


def _empty(key: SeriesKey, result: EvalResult) -> BenchmarkSeries:
    return BenchmarkSeries(
        key=key,
        metric=result.metric,
        higher_is_better=result.higher_is_better,
        plans=(),
        finished_at=(),
        coverage=np.zeros(0),
        sample_ids=(),
        subsets=(),
        cluster_ids=(),
        matrices={measure: empty_matrix(0) for measure in Measure},
    )


def _with_result(series: BenchmarkSeries, record: EvalRecord, columns: SampleColumns) -> BenchmarkSeries:
    step = record.plan.checkpoint.step
    position = series.row_of(step)
    if position is not None:
        if series.finished_at[position] > record.finished_at:
            return series  # the newest record of a step counts, in whatever order they come
        series = _without(series, position)
    else:
        position = sum(s < step for s in series.steps)
    means = averaged(columns)
    series = _with_samples(series, means.sample_ids.tolist(), means.subsets.tolist(), means.cluster_ids.tolist())
    index = {sample_id: at for at, sample_id in enumerate(series.sample_ids)}
    at = np.array([index[sample_id] for sample_id in means.sample_ids.tolist()], dtype=np.int64)
    longest = _longest_answer(record.plan, series.key.benchmark)
    values = {
        Measure.SCORE: means.scores if series.higher_is_better else 1.0 - means.scores,
        Measure.OUTPUT_LENGTH: 1.0 - means.output_tokens / longest,
        Measure.COMPLETENESS: 1.0 - means.truncated,
    }
    return replace(
        series,
        plans=_at(series.plans, position, record.plan),
        finished_at=_at(series.finished_at, position, record.finished_at),
        coverage=np.insert(series.coverage, position, columns.coverage),
        matrices={
            measure: inserted(series.matrix(measure), position, _placed(values[measure], at, len(series.sample_ids)))
            for measure in Measure
        },
    )


def _without(series: BenchmarkSeries, position: int) -> BenchmarkSeries:
    return replace(
        series,
        plans=series.plans[:position] + series.plans[position + 1 :],
        finished_at=series.finished_at[:position] + series.finished_at[position + 1 :],
        coverage=np.delete(series.coverage, position),
        matrices={measure: without_row(matrix, position) for measure, matrix in series.matrices.items()},
    )


def _with_samples(
    series: BenchmarkSeries, sample_ids: Sequence[str], subsets: Sequence[str], cluster_ids: Sequence[str]
) -> BenchmarkSeries:
    known = set(series.sample_ids)
    new = [at for at, sample_id in enumerate(sample_ids) if sample_id not in known]
    if not new:
        return series
    return replace(
        series,
        sample_ids=(*series.sample_ids, *(sample_ids[at] for at in new)),
        subsets=(*series.subsets, *(subsets[at] for at in new)),
        cluster_ids=(*series.cluster_ids, *(cluster_ids[at] for at in new)),
        matrices={measure: widened(matrix, len(new)) for measure, matrix in series.matrices.items()},
    )


def _longest_answer(plan: EvalPlan, benchmark: str) -> int:
    own = next((b.max_tokens for b in plan.suite.benchmarks if b.name == benchmark), None)
    return own or plan.suite.generation.max_tokens


def _placed(values: FloatArray, at: IntArray, n_samples: int) -> FloatArray:
    placed = np.full(n_samples, np.nan)
    placed[at] = values
    return placed


def _at(items: tuple[T, ...], position: int, item: T) -> tuple[T, ...]:
    return (*items[:position], item, *items[position:])
