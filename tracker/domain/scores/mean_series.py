"""Benchmarks with imported means and standard errors only: a few numbers per checkpoint. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from eval_jobs.records.imported import Aggregate
from eval_jobs.types import EvalRecord
from tracker.domain.scores.matrix import FloatArray, IntArray
from tracker.domain.scores.series import SeriesKey, series_keys


@dataclass(frozen=True, kw_only=True, eq=False)
class MeanSeries:
    """One benchmark at T checkpoints of a run, all with the same settings."""

    steps: IntArray
    """Shape (T,), ascending."""
    means: FloatArray
    """Shape (T,), in the metric's own direction."""
    stderrs: FloatArray
    """Shape (T,); NaN: unknown."""

    def between(self, first: int, end: int) -> MeanSeries:
        """Return the checkpoints with first <= step < end."""
        low, high = np.searchsorted(self.steps, (first, end))
        return MeanSeries(steps=self.steps[low:high], means=self.means[low:high], stderrs=self.stderrs[low:high])

    def without(self, steps: Container[int]) -> MeanSeries:
        """Return the checkpoints that are not in `steps`."""
        kept = np.array([step not in steps for step in self.steps.tolist()], dtype=bool)
        return MeanSeries(steps=self.steps[kept], means=self.means[kept], stderrs=self.stderrs[kept])

    def with_point(self, step: int, point: Aggregate) -> MeanSeries:
        """Return the series with `point` at `step`, which replaces an earlier point of this step."""
        before, after = self.between(0, step), self.between(step + 1, np.iinfo(np.int64).max)
        own = _series_of({step: point})
        return MeanSeries(
            steps=np.concatenate([before.steps, own.steps, after.steps]),
            means=np.concatenate([before.means, own.means, after.means]),
            stderrs=np.concatenate([before.stderrs, own.stderrs, after.stderrs]),
        )


NO_MEANS = MeanSeries(steps=np.zeros(0, dtype=np.int64), means=np.zeros(0), stderrs=np.zeros(0))

Means = Mapping[SeriesKey, MeanSeries]


def means_of(records: Iterable[EvalRecord]) -> Means:
    """Return all means of a run, from records in any order; for each step the newest import counts."""
    found: dict[SeriesKey, dict[int, Aggregate]] = {}
    imported = (record for record in records if any(result.aggregate is not None for result in record.results))
    for record in sorted(imported, key=_order):
        for key, point in _points(record):
            found.setdefault(key, {})[record.plan.checkpoint.step] = point
    return {key: _series_of(points) for key, points in found.items()}


def with_means(known: Means, record: EvalRecord) -> Means:
    """Return the means with those of `record`, which must be the newest of its step."""
    step, found = record.plan.checkpoint.step, dict(known)
    for key, point in _points(record):
        found[key] = found[key].with_point(step, point) if key in found else _series_of({step: point})
    return found


def _points(record: EvalRecord) -> Iterator[tuple[SeriesKey, Aggregate]]:
    results = [o for o in record.results if o.aggregate is not None]
    for key, result in zip(series_keys(record.plan, results), results, strict=True):
        if result.aggregate is not None:
            yield key, result.aggregate


def _order(record: EvalRecord) -> tuple[int, datetime, datetime, str]:
    checkpoint = record.plan.checkpoint
    return checkpoint.step, checkpoint.ready_at, record.finished_at, record.plan.id


def _series_of(points: Mapping[int, Aggregate]) -> MeanSeries:
    errors = [np.nan if point.stderr is None else point.stderr for point in points.values()]
    return MeanSeries(
        steps=np.array(list(points), dtype=np.int64),
        means=np.array([point.mean for point in points.values()]),
        stderrs=np.array(errors),
    )
