"""The subsets of a benchmark as separate units: the same tests on fewer samples. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from tracker.domain.forgetting.levels import LedgerSubject
from tracker.domain.regression.detector import Track, jitter_of
from tracker.domain.scores.grouping import grouping_of
from tracker.domain.scores.matrix import Contrast, FloatArray, IntArray, ScoreMatrix, columns_of_matrix

_PSEUDO_SAMPLES = 20
"""Weight of the benchmark's variance in that of a subset: five samples that never changed still have an error."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SubsetScores:
    """Scores of a subset, with variance shrunk towards the whole benchmark's; a `regression.detector.Scores`."""

    own: ScoreMatrix
    whole: ScoreMatrix

    @property
    def means(self) -> FloatArray:
        """Mean score of every checkpoint, shape (T,); NaN if no sample has a score."""
        return self.own.means

    def contrasts(self, weights: FloatArray) -> tuple[Contrast, ...]:
        """Return D and its item variance for every row of `weights`, shape (Q, T)."""
        pairs = zip(self.own.contrasts(weights), self.whole.contrasts(weights), strict=True)
        return tuple(_shrunk(own, whole) for own, whole in pairs)


def subset_units(
    subsets: tuple[str, ...], whole: LedgerSubject, matrix: ScoreMatrix
) -> Iterator[tuple[str, IntArray, LedgerSubject]]:
    """Yield name, columns and unit of every subset, in order of appearance; nothing if there is only one.

    `subsets` has the subset of every sample of the benchmark `whole`, whose scores are `matrix`.
    """
    grouping = grouping_of(subsets)
    if len(grouping.names) < 2:
        return
    columns = [np.flatnonzero(grouping.index == at) for at in range(len(grouping.names))]
    scores = [SubsetScores(own=columns_of_matrix(matrix, at), whole=matrix) for at in columns]
    tracks = [_track(s, whole.track) for s in scores]
    for name, at, track, jitter in zip(grouping.names, columns, tracks, jitter_of(tracks), strict=True):
        yield name, at, replace(whole, track=track, jitter=jitter, counted=np.intersect1d(track.rows, whole.counted))


def _track(scores: SubsetScores, whole: Track) -> Track:
    """Return the checkpoints at which the subset has any score."""
    there = ~np.isnan(scores.means[whole.rows])
    return Track(scores=scores, rows=whole.rows[there], noise_from=int(np.count_nonzero(there[: whole.noise_from])))


def _shrunk(own: Contrast, whole: Contrast) -> Contrast:
    """Return `own` with the item variance (20 s_whole^2 + n s_own^2) / (20 + n) / n."""
    if own.n < 2 or whole.n < 2:
        return own
    spread = (own.n - 1) * own.item_variance  # the mean square of the samples' differences
    of_all = (whole.n - 1) * whole.item_variance
    mixed = (_PSEUDO_SAMPLES * of_all + own.n * spread) / (_PSEUDO_SAMPLES + own.n)
    return replace(own, item_variance=mixed / own.n)
