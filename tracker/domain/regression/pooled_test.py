"""The test behind every verdict: the mean of m new checkpoints against the mean of a block of W. Pure.

v = v_item + tau^2 (1/m + 1/W) is the variance of D without a loss. It is known with a variance of its own, u. The
inverse gamma distribution with this mean and variance makes D a t variable with df = 4 + 2 v^2 / u degrees of freedom
and se^2 = v (df - 2) / df (normal with unknown variance: Gelman et al. 2013, Bayesian Data Analysis, chapter 3).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tracker.domain.regression.jitter import PERSISTENCES, Jitter
from tracker.domain.regression.null_variance import GUARD
from tracker.domain.scores.matrix import Contrast, FloatArray
from tracker.domain.scores.statistics.paired import Spread, interval, t_cdf, t_quantile, tost_p

_LEAST_DF = 4.0
_MOST_DF = 1e12
_NO_VARIANCE = 1e-30


@dataclass(frozen=True, kw_only=True)
class PooledTest:
    """A test of the difference of two blocks of checkpoints."""

    delta: float
    stderr: float
    """With jitter: the scale of the t distribution."""
    item_stderr: float
    """Without jitter: from the samples alone."""
    df: float
    n: int
    common_fraction: float

    @property
    def variance(self) -> float:
        """Variance of D without a loss."""
        return self.stderr**2 * self.df / (self.df - 2)

    def p_worse(self, factor: int = 1) -> float:
        """Return the one-sided p of "worse", times `factor` (number of blocks that the baseline is the best of)."""
        return min(1.0, t_cdf(self.delta / self.stderr, self.df) * factor)

    def p_better(self, factor: int = 1) -> float:
        """Return the one-sided p of "better", times `factor`."""
        return min(1.0, t_cdf(-self.delta / self.stderr, self.df) * factor)

    def p_worse_items(self, factor: int = 1) -> float:
        """Return the p of "worse" from sample flips alone: for comparison, never for decisions."""
        return min(1.0, t_cdf(self.delta / self.item_stderr, max(self.n - 1, 1)) * factor)

    def with_variance_of_at_least(self, variance: float) -> PooledTest:
        """Return the test with a variance not below `variance` and the same degrees of freedom.

        A larger variance would give more degrees of freedom, which could make a far p smaller instead of larger.
        """
        return replace(self, stderr=max(self.stderr, _scale(variance, self.df)))

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return low and high of the two-sided interval of the true difference."""
        return interval(Spread(centre=self.delta, stderr=self.stderr, df=self.df), level)

    def equivalence_p(self, margin: float) -> float:
        """Return the p of "the true difference is at least `margin`", the larger of two one-sided tests (TOST)."""
        return tost_p(Spread(centre=self.delta, stderr=self.stderr, df=self.df), margin)

    def mde(self, alpha: float, power: float = 0.8) -> float:
        """Return the smallest true loss that a test at `alpha` finds with `power`: (z_alpha + z_power) * stderr."""
        return (t_quantile(power, math.inf) - t_quantile(alpha, math.inf)) * self.stderr


def null_test(contrast: Contrast, jitter: Jitter, shares: FloatArray, past: float | None) -> PooledTest:
    """Return the test of `contrast` with its item variance without a loss (see `null_variance`).

    v0 = max(past, .6 v) if the past is known, else v.
    """
    now = contrast.item_variance
    return _test(contrast, now if past is None else max(past, GUARD * now), jitter, shares)


def pooled_test(contrast: Contrast, jitter: Jitter, shares: FloatArray) -> PooledTest:
    """Return the test of `contrast`; `shares` are those of `Jitter.of_contrast`."""
    return _test(contrast, contrast.item_variance, jitter, shares)


def independent(m: float, width: float) -> FloatArray:
    """Return the shares of two means of checkpoints so far apart that their jitter is independent."""
    return np.full(len(PERSISTENCES), 1 / m + 1 / width)


def _test(contrast: Contrast, item_variance: float, jitter: Jitter, shares: FloatArray) -> PooledTest:
    """Return the test of `contrast` with an item variance of `item_variance` without a loss."""
    n = max(contrast.n, 1)
    by_jitter, doubt = jitter.of_contrast(shares)
    variance = max(item_variance * (1 + 2 / n) + by_jitter, _NO_VARIANCE)  # 0: two equal blocks
    df = _df(variance, doubt + 2 * item_variance**2 / n)
    return PooledTest(
        delta=contrast.delta,
        stderr=_scale(variance, df),
        item_stderr=math.sqrt(contrast.item_variance),
        df=df,
        n=contrast.n,
        common_fraction=contrast.common_fraction,
    )


def _scale(variance: float, df: float) -> float:
    return math.sqrt(variance * (df - 2) / df)


def _df(variance: float, doubt: float) -> float:
    """Return the degrees of freedom of a test whose `variance` has the variance `doubt`."""
    if math.isinf(variance):
        return _LEAST_DF
    return min(_LEAST_DF + 2 * variance**2 / max(doubt, _NO_VARIANCE), _MOST_DF)
