"""The score of a whole benchmark, estimated from the samples of a screen. Pure.

The difference estimator of survey sampling (Särndal, Swensson and Wretman 1992, 6.3): with the screen S of n of N
samples and e_i the mean score of sample i at earlier checkpoints that were evaluated in full,

    score = mean of e_i over all N + mean of (x_i - e_i) over S,   v = (1 - n / N) var(x_i - e_i) / n

Hashes of the questions choose the screen, not their scores, so the estimate is unbiased whatever e_i is. Samples that
are always right or always wrong have x_i = e_i and add no variance.
"""

import math
from dataclasses import dataclass

import numpy as np

from tracker.domain.scores.matrix import FloatArray, IntArray, ScoreMatrix, values_at
from tracker.domain.scores.statistics.few_clusters import renumbered
from tracker.domain.scores.statistics.paired import Spread, interval, standard_error

REFERENCES = 8
"""Number of newest earlier checkpoints behind `e_i`."""


@dataclass(frozen=True, kw_only=True)
class EstimatedScore:
    """Estimate of a mean over all samples of a benchmark, and its standard error for what was not evaluated."""

    score: float
    stderr: float
    df: float

    @property
    def margin(self) -> float:
        """Half the width of the 95 % interval."""
        low, high = interval(Spread(centre=0.0, stderr=self.stderr, df=self.df))
        return (high - low) / 2


def estimated_score(
    matrix: ScoreMatrix, row: int, references: IntArray, clusters: IntArray | None
) -> EstimatedScore | None:
    """Return the estimate for the checkpoint at `row`; None with fewer than two samples or clusters to estimate from.

    `references` are the rows of earlier checkpoints that were planned in full, in order: one that was completed because
    its screen looked bad has a screen that is worse than the rest. `clusters` has shape (n,), as for `standard_error`.
    """
    expected = _expected(matrix, references[-REFERENCES:])
    differences = values_at(matrix, np.array([row]))[0] - expected
    known = ~np.isnan(differences)
    n, planned = int(known.sum()), int((~np.isnan(expected)).sum())
    units, dense = n, None
    if clusters is not None:
        dense, units = renumbered(clusters[known])
    spread = standard_error(differences[known], dense)
    if spread is None:
        return None
    unseen = 1 / units  # as if one more had changed: equal differences do not show that all others are equal
    stderr = math.hypot(spread, unseen) * math.sqrt(1 - n / planned)
    return EstimatedScore(
        score=float(np.nanmean(expected) + differences[known].mean()), stderr=stderr, df=float(units - 1)
    )


def _expected(matrix: ScoreMatrix, references: IntArray) -> FloatArray:
    """Return the mean score of each sample at the references, shape (n,), NaN without one; 0 without references."""
    if not references.size:
        return np.zeros(matrix.n_samples)
    values = values_at(matrix, references)
    counts = (~np.isnan(values)).sum(axis=0)
    expected: FloatArray = np.divide(
        np.nansum(values, axis=0), counts, out=np.full(counts.shape, np.nan), where=counts > 0
    )
    return expected
