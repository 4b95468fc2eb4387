"""The test behind every verdict: the mean of m new checkpoints against the mean of a block of W. Pure.

se^2 = v_item + tau^2 (1/m + 1/W), and D/se has a t distribution with Satterthwaite's degrees of freedom
2 se^4 / ((1/m + 1/W)^2 Var(tau^2)), because tau itself is only estimated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tracker.domain.regression.jitter import Jitter
from tracker.domain.regression.null_variance import GUARD
from tracker.domain.scores.matrix import Contrast
from tracker.domain.scores.statistics import Spread, interval, t_cdf, t_quantile, tost_p

_DF_RANGE = (4.0, 1e6)
_NO_VARIANCE = 1e-30


@dataclass(frozen=True, kw_only=True)
class PooledTest:
    """A test of the difference of two blocks of checkpoints."""

    delta: float
    stderr: float
    """With jitter."""
    item_stderr: float
    """Without jitter: from the samples alone."""
    df: float
    n: int
    common_fraction: float

    def p_worse(self, factor: int = 1) -> float:
        """Return the one-sided p of "worse", times `factor` (number of blocks that the baseline is the best of)."""
        return min(1.0, t_cdf(self.delta / self.stderr, self.df) * factor)

    def p_better(self, factor: int = 1) -> float:
        """Return the one-sided p of "better", times `factor`."""
        return min(1.0, t_cdf(-self.delta / self.stderr, self.df) * factor)

    def p_worse_items(self, factor: int = 1) -> float:
        """Return the p of "worse" from sample flips alone: for comparison, never for decisions."""
        return min(1.0, t_cdf(self.delta / self.item_stderr, max(self.n - 1, 1)) * factor)

    def with_stderr_of_at_least(self, stderr: float) -> PooledTest:
        """Return the test with a standard error not below `stderr` and the same degrees of freedom.

        A larger variance would give more degrees of freedom, which could make a far p smaller instead of larger.
        """
        return replace(self, stderr=max(self.stderr, stderr))

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return low and high of the two-sided interval of the true difference."""
        return interval(Spread(centre=self.delta, stderr=self.stderr, df=self.df), level)

    def equivalence_p(self, margin: float) -> float:
        """Return the p of "the true difference is at least `margin`", the larger of two one-sided tests (TOST)."""
        return tost_p(Spread(centre=self.delta, stderr=self.stderr, df=self.df), margin)

    def mde(self, alpha: float, power: float = 0.8) -> float:
        """Return the smallest true loss that a test at `alpha` finds with `power`: (z_alpha + z_power) * stderr."""
        return (t_quantile(power, math.inf) - t_quantile(alpha, math.inf)) * self.stderr


def null_test(contrast: Contrast, jitter: Jitter, m: float, width: float, past: float | None) -> PooledTest:
    """Return the test of `contrast` with its item variance without a loss (see `null_variance`).

    v0 = max(past, .6 v) if the past is known, else v; its own n degrees of freedom are counted:
    df = 2 se^4 / ((1/m + 1/W)^2 Var(tau^2) + 2 v0^2 / n).
    """
    now = contrast.item_variance
    variance = now if past is None else max(past, GUARD * now)
    share = _share(contrast, m, width)
    total = variance + jitter.tau2 * share
    doubt = share**2 * jitter.variance + 2 * variance**2 / max(contrast.n, 1)
    plain = pooled_test(contrast, jitter, m, width)
    return replace(plain, stderr=math.sqrt(total), df=_df(total, doubt))


def pooled_test(contrast: Contrast, jitter: Jitter, m: float, width: float) -> PooledTest:
    """Return the test of `contrast`, a mean of `m` checkpoints minus a mean of `width` (infinite: a fixed number)."""
    share = _share(contrast, m, width)
    variance = contrast.item_variance + jitter.tau2 * share
    return PooledTest(
        delta=contrast.delta,
        stderr=math.sqrt(variance),
        item_stderr=math.sqrt(contrast.item_variance),
        df=_df(variance, share**2 * jitter.variance),
        n=contrast.n,
        common_fraction=contrast.common_fraction,
    )


def _share(contrast: Contrast, m: float, width: float) -> float:
    if contrast.jitter_share is None:
        return 1 / m + 1 / width
    return contrast.jitter_share


def _df(variance: float, doubt: float) -> float:
    """Return Satterthwaite's degrees of freedom of `variance`, whose own variance is `doubt`."""
    if math.isinf(variance):
        return _DF_RANGE[0]
    return min(max(2 * variance**2 / max(doubt, _NO_VARIANCE), _DF_RANGE[0]), _DF_RANGE[1])
