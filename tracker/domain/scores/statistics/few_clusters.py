"""Standard error and degrees of freedom of a mean over clusters, few or of unequal size. Pure.

The sandwich estimator with the correction CR2 and the degrees of freedom of Satterthwaite (Bell and McCaffrey 2002;
Imbens and Kolesar 2016; Pustejovsky and Tipton 2018). The uncorrected form with C - 1 degrees of freedom finds 2 to 6 %
of losses at a level of 1 % where 13 clusters have unequal sizes; with equal sizes both are the same.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import fdtrc

from tracker.domain.scores.matrix import FloatArray, IntArray


@dataclass(frozen=True, kw_only=True)
class ClusteredMean:
    """What is known of the error of a mean."""

    stderr: float
    df: float
    """Degrees of freedom of its t distribution: at most clusters - 1, fewer with unequal clusters."""


def renumbered(clusters: IntArray) -> tuple[IntArray, int]:
    """Return the clusters of some samples, shape (n,), numbered from 0 without gaps in the same order, and how many."""
    number = np.cumsum(np.bincount(clusters) > 0)
    dense: IntArray = (number - 1)[clusters]
    return dense, int(number[-1]) if number.size else 0


def clustered_mean(values: FloatArray, clusters: IntArray) -> ClusteredMean | None:
    """Return the error of the mean of `values`, shape (n,); `clusters` is the index of each value's cluster.

    None: fewer than two clusters.
    """
    stderr = clustered_stderr(values, clusters)
    if stderr is None:
        return None
    sizes = np.bincount(clusters).astype(np.float64)
    return ClusteredMean(stderr=stderr, df=_degrees_of_freedom(sizes, _correlation(values, clusters)))


def clustered_stderr(values: FloatArray, clusters: IntArray) -> float | None:
    """Return the standard error of `clustered_mean`, a fraction of its time.

    sqrt(sum over clusters of (sum in cluster of (x - mean))^2 / (1 - share of the cluster)) / n.
    """
    sizes = np.bincount(clusters)
    if sizes.size < 2:
        return None
    sums = np.bincount(clusters, weights=values - values.mean())
    return math.sqrt(float((sums**2 / (1 - sizes / values.size)).sum())) / values.size


def differ_p(values: FloatArray, groups: IntArray) -> float:
    """Return the p of "all groups have the same mean": one-way analysis of variance; 1 if it cannot be tested."""
    found = _analysed(values, groups)
    if found is None or found.within <= _ZERO:
        return 1.0
    count = int(groups.max()) + 1
    return float(fdtrc(count - 1, values.size - count, found.between / found.within))


_ZERO = 1e-12
"""Variances up to this are rounding noise of equal values."""


@dataclass(frozen=True, kw_only=True)
class _Analysed:
    between: float
    within: float
    size: float
    """Of a typical cluster."""


def _analysed(values: FloatArray, clusters: IntArray) -> _Analysed | None:
    """Return the mean squares between and within clusters; None without two clusters, or if no two values share one."""
    sizes = np.bincount(clusters).astype(np.float64)
    n, groups = values.size, sizes.size
    if not 1 < groups < n:
        return None
    means = np.bincount(clusters, weights=values) / sizes
    return _Analysed(
        between=float(sizes @ (means - values.mean()) ** 2) / (groups - 1),
        within=float(((values - means[clusters]) ** 2).sum()) / (n - groups),
        size=(n - float(sizes @ sizes) / n) / (groups - 1),
    )


def _correlation(values: FloatArray, clusters: IntArray) -> float:
    """Return the correlation of two values of one cluster, by analysis of variance, within 0 and 1."""
    found = _analysed(values, clusters)
    if found is None:
        return 0.0
    spread = found.between + (found.size - 1) * found.within
    return min(max((found.between - found.within) / spread, 0.0), 1.0) if spread > _ZERO else 0.0


def _degrees_of_freedom(sizes: FloatArray, correlation: float) -> float:
    """Return tr(M)^2 / tr(M^2) for the matrix M whose quadratic form is the variance estimate (C x C).

    M_gh = s_g s_h (w_g [g = h] - p_g w_h - w_g p_h + w p_g p_h): p are the shares of the clusters, s^2 = 1 / (1 - p),
    w the variances of their sums, and w without index their total. It has rank 2 beyond its diagonal.
    """
    shares = sizes / sizes.sum()
    scale = 1 / np.sqrt(1 - shares)
    w = sizes * (1 - correlation) + correlation * sizes**2
    u, v, total = scale * shares, scale * w, float(w.sum())
    diagonal = scale**2 * w
    trace = float((diagonal - 2 * u * v + total * u * u).sum())
    uu, uv, vv = float(u @ u), float(u @ v), float(v @ v)
    squares = float(diagonal @ diagonal) + 2 * float(diagonal @ (total * u * u - 2 * u * v))
    squares += 2 * uu * vv + 2 * uv**2 + total**2 * uu**2 - 4 * total * uu * uv
    return min(max(trace**2 / squares, 1.0), sizes.size - 1.0)
