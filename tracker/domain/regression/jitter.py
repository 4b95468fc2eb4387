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

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from tracker.domain.scores.matrix import Contrast, FloatArray, IntArray

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


def independent_jitter(jitter: Jitter) -> Jitter:
    """Return what is known about tau^2 if neighbouring checkpoints do not share their jitter."""
    (own,) = (p for p in jitter.persistent if p.r == 0)
    return Jitter(tau2=own.tau2, variance=max(own.tau4 - own.tau2**2, 0.0))


def estimate_jitter(histories: Sequence[Sequence[SecondDifferences]]) -> tuple[Jitter, ...]:
    """Return the jitter of each benchmark from the newest second differences of all of them, some for each size."""
    if not histories:
        return ()
    shown = np.exp([_log_likelihood(parts) for parts in histories])  # K x r x tau
    evidence = shown @ _PRIORS.T  # K x r x centres and widths of tau
    together = np.log(evidence).sum(axis=0) + _LOG_R[:, np.newaxis] + _LOG_WEIGHTS
    weights = np.exp(together - together.max())
    weights /= weights.sum()
    posterior = shown * ((weights / evidence) @ _PRIORS)  # K x r x tau
    posterior = np.maximum(posterior / posterior.sum(axis=(1, 2), keepdims=True), _NOTHING)
    return tuple(_jitter(one) for one in posterior)


def persistent_shares(weights: FloatArray, places: IntArray) -> FloatArray:
    """Return w'Rw for each of `PERSISTENCES`: `weights` of the checkpoints at `places` of the run, shape (s,)."""
    distances = np.abs(places[:, np.newaxis] - places)
    products = np.bincount(distances.ravel(), weights=np.outer(weights, weights).ravel())
    shares: FloatArray = np.array(PERSISTENCES)[:, np.newaxis] ** np.arange(products.size) @ products
    return shares


def second_differences_of(found: Sequence[Contrast], size: int = 1) -> SecondDifferences:
    """Return second differences, oldest first, from their contrasts."""
    deltas, variances = np.array([c.delta for c in found]), np.array([c.item_variance for c in found])
    return SecondDifferences(deltas=deltas, item_variances=variances, size=size)


def winsorised_mean(squares: FloatArray, items: float) -> float:
    """Return the mean of squared second differences with an item variance of `items`, without outliers."""
    cap = _CLIP**2 * max(float(np.median(squares)) / MEDIAN_CHI2, items)
    return float(np.minimum(squares, cap).mean())


def _log_likelihood(parts: Sequence[SecondDifferences]) -> FloatArray:
    """Return the logarithm of the likelihood of every r and tau, at most 0: S ~ (v + tau^2 f) chi2_df / df."""
    total = np.zeros((len(PERSISTENCES), _STEPS))
    for part in parts:
        known = np.isfinite(part.item_variances)  # infinite if a triple has fewer than two common samples
        squares = part.deltas[known][-WINDOW:] ** 2
        if squares.size < MIN_HISTORY:
            continue
        items = float(part.item_variances[known][-WINDOW:].mean())
        expected = items + np.outer(_shares_of(part.size), _GRID2)
        # Neighbouring second differences share checkpoints.
        df = squares.size / (2 * part.size)
        total -= df / 2 * (np.log(expected) + winsorised_mean(squares, items) / expected)
    relative: FloatArray = np.maximum(total - total.max(), _SMALLEST)
    return relative


@cache
def _shares_of(size: int) -> FloatArray:
    return persistent_shares(np.repeat((1.0, -2.0, 1.0), size) / size, np.arange(3 * size))


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
_LOG_R = np.log([0.7, 0.1, 0.08, 0.05, 0.04, 0.02, 0.01])
