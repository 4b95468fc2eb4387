"""Training jitter: how far a score moves between checkpoints beyond what its samples explain (tau). Pure.

Tests of sample flips alone treat each such movement as a loss: with a jitter of 0.3 points they raise a false alarm in
nearly every healthy run of 100 checkpoints and 20 benchmarks.

The second difference of three neighbouring blocks of L checkpoints, c = b_1 - 2 b_2 + b_3, cancels a linear trend. With
jitter that is an AR(1) of variance tau^2 and correlation r between neighbouring checkpoints,

    E c^2 = v_item(c) + tau^2 w'Rw

for the weights w and the correlations R of its checkpoints, so several L show both. Squares are winsorised, so that a
single loss does not count as noise. The benchmarks of a run differ, by a factor of 30 and more in published ones: the
tau of each has a log-normal distribution, whose centre and width are unknown, too, and are learned from all benchmarks
of the run, as is the r that they share. The posterior of this hierarchical model is summed over a grid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from tracker.domain.regression.blocks import median_of, triple_weights
from tracker.domain.scores.matrix import Contrast, FloatArray, IntArray, Moments

WINDOW = 40
"""Number of newest second differences to use."""

TAU_START = 0.003
"""Centre of the jitter assumed before the run has shown its own: 0.3 points."""

MIN_HISTORY = 3
"""Minimum number of second differences to estimate the jitter of a run from its own checkpoints."""

TAU_MAX = 0.1
"""Upper limit, 10 points: a skill that jumps from 0 to 1 and back is not noise, and its loss of dozens of points must
be reported."""

TAU_MIN = 0.0005
"""Lower limit, 0.05 points: no run is known to be quieter."""

MEDIAN_CHI2 = 0.4549
"""Median of chi-square with one degree of freedom."""

_CLIP = 3.5
_STEPS = 45
_CENTRE_LOG_SD = 0.5
_CENTRES = 15
_WIDTHS = ((0.2, 2.0), (0.4, 3.0), (0.7, 2.0), (1.1, 1.0), (1.6, 0.5))
"""Standard deviations of log tau among the benchmarks of a run, and their weights before it has shown any."""


PERSISTENCES = (0.0, 0.2, 0.4, 0.55, 0.7, 0.8, 0.88)
"""Correlations r of the jitter at neighbouring checkpoints. A larger one could not be told from a slow loss."""

SIZES = (1, 2, 4, 6)
"""Numbers of checkpoints in a block of a second difference."""


_FAR = 400
"""Distance of checkpoints that share nothing: the largest r to this power is 1e-22."""

_POWERS = np.array(PERSISTENCES)[:, np.newaxis] ** np.arange(_FAR + 1)


@dataclass(frozen=True, kw_only=True)
class SecondDifferences:
    """Second differences of blocks of one size, oldest first, and their item variances; both of shape (h,)."""

    deltas: FloatArray
    item_variances: FloatArray
    size: int = 1


@dataclass(frozen=True, kw_only=True)
class Persistent:
    """What is known about tau^2 if the correlation of neighbouring checkpoints is `r`."""

    r: float
    probability: float
    tau2: float
    """Mean."""
    tau4: float
    """Mean of the square."""


@dataclass(frozen=True, kw_only=True)
class Jitter:
    """tau^2 of one benchmark, in squared score units: mean and variance of what is known about it."""

    tau2: float
    variance: float
    persistent: tuple[Persistent, ...] = ()
    """The same for each r; (): r is 0."""

    def of_contrast(self, shares: FloatArray) -> tuple[float, float]:
        """Return the variance that jitter adds to a contrast, and the variance of this number.

        `shares` has w'Rw for its weights w and the correlations R of its checkpoints, for each of `PERSISTENCES`.
        """
        if not self.persistent:
            return float(shares[0]) * self.tau2, float(shares[0]) ** 2 * self.variance
        mean = doubt = 0.0
        for p, share in zip(self.persistent, shares.tolist(), strict=True):
            mean += p.probability * share * p.tau2
            doubt += p.probability * share**2 * (p.tau4 - p.tau2**2)
        return mean, doubt


def persistence_of(jitter: Jitter) -> float:
    """Return the mean of what is known about r, the correlation of neighbouring checkpoints."""
    return sum(p.probability * p.r for p in jitter.persistent)


def independent_jitter(jitter: Jitter) -> Jitter:
    """Return what is known about tau^2 if neighbouring checkpoints do not share their jitter."""
    (own,) = (p for p in jitter.persistent if p.r == 0)
    return Jitter(tau2=own.tau2, variance=max(own.tau4 - own.tau2**2, 0.0))


def estimate_jitter(histories: Sequence[Sequence[SecondDifferences]]) -> tuple[Jitter, ...]:
    """Return the jitter of each benchmark from the newest second differences of all of them, some for each size."""
    if not histories:
        return ()
    shown = np.exp(_log_likelihoods(histories))  # K x r x tau
    evidence = shown @ _PRIORS.T  # K x r x centres and widths of tau
    together = np.log(evidence).sum(axis=0) + _LOG_R[:, np.newaxis] + _LOG_WEIGHTS
    weights = np.exp(together - together.max())
    weights /= weights.sum()
    posterior = shown * ((weights / evidence) @ _PRIORS)  # K x r x tau
    posterior = np.maximum(posterior / posterior.sum(axis=(1, 2), keepdims=True), _NOTHING)
    return tuple(_jitter(one) for one in posterior)


def persistent_shares(weights: FloatArray, places: IntArray) -> FloatArray:
    """Return w'Rw for each of `PERSISTENCES`: `weights` of the checkpoints at `places` of the run, shape (s,)."""
    return _shares_of(weights.tobytes(), (places - places[:1]).tobytes())


@lru_cache(maxsize=1024)
def _shares_of(weights_bytes: bytes, places_bytes: bytes) -> FloatArray:
    """Return the shares of float64 weights at int64 places: those of most benchmarks are the same."""
    weights, places = np.frombuffer(weights_bytes), np.frombuffer(places_bytes, dtype=np.int64)
    distances = np.minimum(np.abs(places[:, np.newaxis] - places), _FAR)
    products = np.bincount(distances.ravel(), weights=np.outer(weights, weights).ravel())
    shares: FloatArray = _POWERS[:, : products.size] @ products
    shares.flags.writeable = False
    return shares


def second_differences_of(found: Sequence[Contrast], size: int = 1) -> SecondDifferences:
    """Return second differences, oldest first, from their contrasts."""
    deltas, variances = np.array([c.delta for c in found]), np.array([c.item_variance for c in found])
    return SecondDifferences(deltas=deltas, item_variances=variances, size=size)


def differences_at(
    starts: Sequence[IntArray], rows: IntArray, moments: Callable[[IntArray, FloatArray], Moments]
) -> tuple[SecondDifferences, ...]:
    """Return the second differences of blocks of each of `SIZES`, which start at `starts` in `rows`.

    `moments` is `ScoreMatrix.moments`: all sizes share the products of rows.
    """
    weights = [triple_weights(own, size, rows.size) for own, size in zip(starts, SIZES, strict=True)]
    found, parts, end = moments(rows, np.concatenate(weights)), [], 0
    for own, size in zip(starts, SIZES, strict=True):
        first, end = end, end + own.size
        deltas, variances = found.deltas[first:end], found.item_variances[first:end]
        parts.append(SecondDifferences(deltas=deltas, item_variances=variances, size=size))
    return tuple(parts)


def winsorised_mean(squares: FloatArray, items: float) -> float:
    """Return the mean of squared second differences with an item variance of `items`, without outliers."""
    cap = _CLIP**2 * max(median_of(squares) / MEDIAN_CHI2, items)
    return float(np.minimum(squares, cap).sum()) / squares.size


def _log_likelihoods(histories: Sequence[Sequence[SecondDifferences]]) -> FloatArray:
    """Return the logarithm of the likelihood of every r and tau, at most 0, shape (K, r, tau)."""
    total = np.zeros((len(histories), len(PERSISTENCES), _STEPS))
    shown = [(k, part.size, *_shown(part)) for k, parts in enumerate(histories) for part in parts]
    enough = [one for one in shown if one[2] >= MIN_HISTORY]
    if enough:
        owners, sizes, counts, items, squares = (np.array(column) for column in zip(*enough, strict=True))
        expected = items[:, np.newaxis, np.newaxis] + np.array([_by_jitter(size) for size in sizes.tolist()])
        # Neighbouring second differences share checkpoints.
        df = (counts / (2 * sizes))[:, np.newaxis, np.newaxis]
        np.subtract.at(total, owners, df / 2 * (np.log(expected) + squares[:, np.newaxis, np.newaxis] / expected))
    relative: FloatArray = np.maximum(total - total.max(axis=(1, 2), keepdims=True), _SMALLEST)
    return relative


def _shown(part: SecondDifferences) -> tuple[int, float, float]:
    """Return the number of the newest second differences, their mean item variance v and their mean square S.

    S ~ (v + tau^2 f) chi2_df / df.
    """
    known = np.isfinite(part.item_variances)  # infinite if a triple has fewer than two common samples
    squares = part.deltas[known][-WINDOW:] ** 2
    if squares.size < MIN_HISTORY:
        return squares.size, 0.0, 0.0
    items = float(part.item_variances[known][-WINDOW:].mean())
    return squares.size, items, winsorised_mean(squares, items)


@cache
def _by_jitter(size: int) -> FloatArray:
    """Return the variance of a second difference of blocks of `size` by jitter, for every r and tau."""
    return np.outer(persistent_shares(np.repeat((1.0, -2.0, 1.0), size) / size, np.arange(3 * size)), _GRID2)


def _jitter(posterior: FloatArray) -> Jitter:
    """Return the moments of a posterior over r and tau."""
    by_r = posterior.sum(axis=1)
    squares, fourths = posterior @ _GRID2, posterior @ _GRID2**2
    mean = float(squares.sum())
    persistent = tuple(
        Persistent(r=r, probability=float(p), tau2=float(square / p), tau4=float(fourth / p))
        for r, p, square, fourth in zip(PERSISTENCES, by_r, squares, fourths, strict=True)
    )
    return Jitter(tau2=mean, variance=max(float(fourths.sum()) - mean**2, 0.0), persistent=persistent)


_NOTHING = 1e-200
"""Smallest probability, so that what is known about tau^2 can be divided by it."""

_SMALLEST = -500.0
"""Smallest relative log likelihood: none is 0, so that benchmarks that contradict each other still have a posterior."""


def _priors(log_grid: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the distribution of tau over the grid for every width and centre, and their logarithmic weights."""
    start = np.log(TAU_START)
    centres = np.linspace(np.log(2 * TAU_MIN), np.log(TAU_MAX / 4), _CENTRES)
    priors, weights = [], []
    for width, weight in _WIDTHS:
        for centre in centres:
            density = np.exp(-0.5 * ((log_grid - centre) / width) ** 2)
            priors.append(density / density.sum())
            weights.append(np.log(weight) - 0.5 * ((centre - start) / _CENTRE_LOG_SD) ** 2)
    return np.array(priors), np.array(weights)


_LOG_GRID = np.linspace(np.log(TAU_MIN), np.log(TAU_MAX), _STEPS)
_GRID2 = np.exp(2 * _LOG_GRID)
_PRIORS, _LOG_WEIGHTS = _priors(_LOG_GRID)
_LOG_R = np.log([0.67, 0.1, 0.08, 0.055, 0.045, 0.03, 0.02])
