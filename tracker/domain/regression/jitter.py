"""Training jitter: how far a score moves between checkpoints beyond what its samples explain (tau). Pure.

Tests of sample flips alone treat each such movement as a loss: with a jitter of 0.3 points they raise a false alarm in
nearly every healthy run of 100 checkpoints and 20 benchmarks.

The second difference of the mean score, c_s = y_s - 2 y_(s-1) + y_(s-2), cancels a linear trend, and
E c^2 = v_item(c) + 6 tau^2. Squares are winsorised, so that a single loss does not count as noise, and the estimate of
each benchmark is shrunk to that of all by empirical Bayes. The variance of the estimate gives the degrees of freedom of
the tests; without it their far tail is badly wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracker.domain.scores.matrix import Contrast, FloatArray

WINDOW = 40
"""Number of newest second differences to use."""

TAU_START = 0.004
"""Jitter assumed before the run has shown its own: 0.4 points."""

MIN_HISTORY = 3
"""Minimum number of second differences to estimate the jitter of a run from its own checkpoints."""

TAU_MAX = 0.05
"""Upper limit, 5 points: a skill that jumps from 0 to 1 and back is not noise, and its loss of dozens of points must be
reported. A larger estimate is replaced by this limit, as if it were known."""

_TAU_FLOOR = 0.0015
_CLIP = 3.5
MEDIAN_CHI2 = 0.4549
"""Median of chi-square with one degree of freedom."""
_PRIOR_WEIGHT = 5
"""Weight of the starting value, in second differences."""
_INFLATION = 1.5
"""Benchmarks differ, so overestimate the noise rather than underestimate it."""
_RELATIVE_VARIANCE = 3.0
"""Squared coefficient of variation of tau^2 among benchmarks."""


@dataclass(frozen=True, kw_only=True)
class SecondDifferences:
    """c_s of one benchmark, oldest first, and their item variances; both of shape (h,)."""

    deltas: FloatArray
    item_variances: FloatArray
    of_parts: SecondDifferences | None = None
    """Those of screened checkpoints, over a part of the samples only; weighted by precision. None: there are none."""


@dataclass(frozen=True, kw_only=True)
class Jitter:
    """tau^2 of one benchmark, in squared score units."""

    tau2: float
    variance: float
    """Variance of the estimate `tau2`."""


def estimate_jitter(histories: Sequence[SecondDifferences]) -> tuple[Jitter, ...]:
    """Return the jitter of each benchmark from the newest `WINDOW` second differences of all of them."""
    raw = [_raw(h) for h in histories]
    known = [r for r in raw if r is not None]
    pooled = _pooled(known)
    unknown = Jitter(tau2=TAU_START**2, variance=_RELATIVE_VARIANCE * TAU_START**4)
    return tuple(unknown if r is None else _shrunk(r, pooled) for r in raw)


def second_differences_of(found: Sequence[Contrast]) -> SecondDifferences:
    """Return second differences, oldest first, from their contrasts."""
    return SecondDifferences(
        deltas=np.array([c.delta for c in found]), item_variances=np.array([c.item_variance for c in found])
    )


def winsorised_mean(squares: FloatArray, items: float) -> float:
    """Return the mean of squared second differences with an item variance of `items`, without outliers."""
    cap = _CLIP**2 * max(float(np.median(squares)) / MEDIAN_CHI2, items)
    return float(np.minimum(squares, cap).mean())


@dataclass(frozen=True, kw_only=True)
class _Raw:
    excess: float
    variance: float
    h: int
    items: float
    """Mean item variance of the second differences."""

    @property
    def weight(self) -> float:
        """Weight among estimates of the same jitter, from the variance at `TAU_START`."""
        # Its own estimated variance would favour estimates that are small by chance.
        return self.h / (self.items / 6 + TAU_START**2) ** 2


def _raw(history: SecondDifferences) -> _Raw | None:
    whole = _raw_of(history)
    part = None if history.of_parts is None else _raw_of(history.of_parts)
    if whole is None or part is None:
        return whole or part
    weights = np.array([whole.weight, part.weight])
    shares = weights / weights.sum()
    return _Raw(
        excess=float(shares @ [whole.excess, part.excess]),
        variance=float(shares**2 @ [whole.variance, part.variance]),
        h=whole.h + part.h,
        items=float(shares @ [whole.items, part.items]),
    )


def _raw_of(history: SecondDifferences) -> _Raw | None:
    known = np.isfinite(history.item_variances)  # infinite if a triple has fewer than two common samples
    squares = history.deltas[known][-WINDOW:] ** 2
    h = squares.size
    if h < MIN_HISTORY:
        return None
    items = float(history.item_variances[known][-WINDOW:].mean())
    square = winsorised_mean(squares, items)
    # h / 2: neighbouring second differences share checkpoints.
    variance = 2 * (max(square, items) / 6) ** 2 / max(h / 2, 1)
    return _Raw(excess=(square - items) / 6, variance=variance, h=h, items=items)


def _pooled(known: Sequence[_Raw]) -> float:
    if not known:
        return 0.0
    weights = np.array([1 / (r.variance + TAU_START**4) for r in known])
    excess = np.array([r.excess for r in known])
    return max(float((weights * excess).sum() / weights.sum()), 0.0)


def _shrunk(raw: _Raw, pooled: float) -> Jitter:
    mixed = (_PRIOR_WEIGHT * TAU_START**2 + raw.h * pooled) / (_PRIOR_WEIGHT + raw.h)
    prior = _INFLATION * max(mixed, _TAU_FLOOR**2)
    spread = _RELATIVE_VARIANCE * prior**2
    share = spread / (spread + raw.variance)
    tau2 = max(prior + share * (raw.excess - prior), _TAU_FLOOR**2)
    if tau2 > TAU_MAX**2:
        return Jitter(tau2=TAU_MAX**2, variance=0.0)
    return Jitter(tau2=tau2, variance=share * raw.variance)
