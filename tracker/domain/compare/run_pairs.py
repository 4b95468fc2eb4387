"""One benchmark of two runs: curves, and paired differences of equal checkpoints. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracker.domain.records.losses import Measure
from tracker.domain.scores.grouping import cluster_index
from tracker.domain.scores.matrix import BoolArray, FloatArray, IntArray, values_at
from tracker.domain.scores.series import BenchmarkSeries
from tracker.domain.scores.statistics.few_clusters import renumbered
from tracker.domain.scores.statistics.paired import mean_interval, paired_test, standard_error
from tracker.domain.verdicts.decision import MIN_COMMON


@dataclass(frozen=True, kw_only=True)
class ScoreAt:
    """The score of one checkpoint, in the metric's own direction."""

    step: int
    score: float
    ci_low: float | None
    """95 % interval; None: unknown."""
    ci_high: float | None
    tokens: float | None = None
    """Training tokens until this step; None: unknown."""


@dataclass(frozen=True, kw_only=True)
class PairedDifference:
    """B minus A over the same samples; up is better."""

    n: int
    """Number of samples with a score on both sides."""
    delta: float
    ci_low: float
    """95 % interval of `delta`, without the noise of training."""
    ci_high: float


@dataclass(frozen=True, kw_only=True, eq=False)
class SeriesPair:
    """One benchmark of two runs, measured alike."""

    a: BenchmarkSeries
    b: BenchmarkSeries
    columns: tuple[IntArray, IntArray]
    """The common samples in each series."""
    clusters: IntArray | None
    """Cluster of every common sample; None: each is its own."""
    planned: int
    """Samples in either series."""

    def difference(self, steps: Sequence[tuple[int, int]]) -> PairedDifference | None:
        """Return the difference of the means over pairs of steps; None without any, or with too few common samples."""
        if not steps:
            return None
        before = _values(self.a, [a for a, _ in steps], self.columns[0])
        after = _values(self.b, [b for _, b in steps], self.columns[1])
        both = ~(np.isnan(before) | np.isnan(after))
        known = both.any(axis=0)
        if known.sum() < max(1, MIN_COMMON * self.planned):
            return None
        counts = both[:, known].sum(axis=0)
        old, new = (np.where(both, values, 0.0)[:, known].sum(axis=0) / counts for values in (before, after))
        test = paired_test(new, old, _clusters_of(self.clusters, known))
        low, high = test.interval
        return PairedDifference(n=test.n, delta=test.delta, ci_low=low, ci_high=high)


def pair_of(of_a: Sequence[BenchmarkSeries], of_b: Sequence[BenchmarkSeries]) -> SeriesPair | None:
    """Return the series of both runs with equal settings; of several, those with the most equal steps, then newest."""
    alike = [(a, b) for a in of_a for b in of_b if _settings(a) == _settings(b)]
    if not alike:
        return None
    a, b = max(alike, key=lambda two: (len({*two[0].steps} & {*two[1].steps}), two[0].steps[-1], two[1].steps[-1]))
    ids_a, ids_b = a.samples.sample_ids, b.samples.sample_ids
    common, *columns = np.intersect1d(ids_a, ids_b, assume_unique=True, return_indices=True)
    return SeriesPair(
        a=a,
        b=b,
        columns=(columns[0], columns[1]),
        clusters=cluster_index(a.samples.cluster_ids[columns[0]].tolist()),
        planned=ids_a.size + ids_b.size - common.size,
    )


def score_at(series: BenchmarkSeries, row: int, clusters: IntArray | None) -> ScoreAt:
    """Return the score of one checkpoint, over its samples with a score; `clusters` are those of all samples."""
    values = values_at(series.matrices[Measure.SCORE], np.array([row]))[0]
    known = ~np.isnan(values)
    own = _clusters_of(clusters, known)
    units = int(known.sum()) if own is None else int(own.max()) + 1
    mean = float(values[known].mean())
    found = mean_interval(mean, standard_error(values[known], own), units)
    if not series.higher_is_better:
        mean, found = 1 - mean, None if found is None else (1 - found[1], 1 - found[0])
    low, high = found or (None, None)
    return ScoreAt(step=series.steps[row], score=mean, ci_low=low, ci_high=high)


def _settings(series: BenchmarkSeries) -> tuple[str, str]:
    return series.key.fingerprint, series.key.serving


def _values(series: BenchmarkSeries, steps: Sequence[int], columns: IntArray) -> FloatArray:
    """Return the values of some steps and samples, shape (steps, samples)."""
    rows = np.searchsorted(series.steps, steps)
    return values_at(series.matrices[Measure.SCORE], rows)[:, columns]


def _clusters_of(clusters: IntArray | None, known: BoolArray) -> IntArray | None:
    """Return the clusters of some of the samples, numbered from 0 without gaps."""
    if clusters is None:
        return None
    return renumbered(clusters[known])[0]
