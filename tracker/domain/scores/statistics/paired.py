"""Paired statistics of two checkpoints: tests, intervals, equivalence, power. Pure.

Scores must be oriented so that higher is better. `delta` is candidate minus baseline.
Sources: Fagerland, Lydersen and Laake 2013 (mid-p McNemar); Bonett and Price 2012 (interval of paired proportions);
Miller 2024, arXiv 2411.00640 (paired and clustered standard errors of evaluations); Schuirmann 1987 (TOST).
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import bdtrc, gammaln, ndtr, ndtri, stdtr, stdtrit

from tracker.domain.scores.matrix import FloatArray, IntArray
from tracker.domain.scores.statistics.few_clusters import clustered_mean, clustered_stderr

MCNEMAR = "mcnemar-midp"
PAIRED_T = "paired-t"
CLUSTERED_T = "clustered-t"

FEW_CHANGED = 10
"""With fewer changed units (clusters, or samples without clusters) the t approximation is too narrow: no change gives a
standard error of 0, and a few units seldom include one that is lost as a whole."""

_ZERO = 1e-12
"""Standard errors up to this are rounding noise of identical differences."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Estimate of the true change: centre +- t quantile * stderr. The width is never 0."""

    centre: float
    stderr: float
    df: float
    """Degrees of freedom of the t distribution; infinite: normal."""
    cautious: float = 0.0
    """Standard error if one more cluster had been lost as a whole and one more gained; 0: no clusters."""


@dataclass(frozen=True, kw_only=True)
class PairedTest:
    """A paired test of the change from baseline to candidate."""

    method: str
    """`mcnemar-midp`, `paired-t` or `clustered-t`."""
    n: int
    delta: float
    stderr: float
    """Plain estimate; intervals and equivalence use `spread`."""
    p_worse: float
    """One-sided p of "candidate is worse"."""
    p_better: float
    spread: Spread
    n_lost: int
    """Samples above .5 in the baseline and not in the candidate."""
    n_gained: int

    @property
    def p_two_sided(self) -> float:
        """Return the p of "both are equal": twice the smaller one-sided p.

        With as many gained as lost, mid-p McNemar has 1 - P(that many) / 2 (Fagerland et al. 2013).
        """
        if self.method == MCNEMAR and self.n_lost == self.n_gained > 0:
            return 1.0 - 0.5 * _chance_of(self.n_lost, 2 * self.n_lost)
        return min(1.0, 2 * min(self.p_worse, self.p_better))

    @property
    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval of the true change; a difference of shares cannot lie outside [-1, 1]."""
        low, high = interval(self.spread)
        if self.method == MCNEMAR:
            return max(low, -1.0), min(high, 1.0)
        return low, high


def paired_test(candidate: FloatArray, baseline: FloatArray, clusters: IntArray | None = None) -> PairedTest:
    """Compare paired scores, both of shape (n,) with n >= 1, with the test that fits them.

    Mid-p McNemar for 0/1 scores without clusters, else the paired t test, cluster-robust if `clusters` (index of each
    sample's cluster, shape (n,), as from `grouping.cluster_index`) is given.
    """
    lost = int(np.count_nonzero((baseline > 0.5) & (candidate <= 0.5)))
    gained = int(np.count_nonzero((baseline <= 0.5) & (candidate > 0.5)))
    if clusters is None and _is_binary(candidate) and _is_binary(baseline):
        return _mcnemar_test(candidate.size, lost, gained)
    return _t_test(candidate - baseline, clusters, lost, gained)


def mcnemar_midp(n_lost: int, n_gained: int) -> float:
    """Return the one-sided mid-p of "worse": P(X > n_lost) + P(X = n_lost) / 2, X ~ Binomial(n_lost + n_gained, 1/2).

    Fagerland et al. 2013: the mid-p test never violated its level in 9,595 scenarios; the exact conditional test is
    needlessly weak. Swap the arguments for "better"; the two add up to 1.
    """
    changed = n_lost + n_gained
    if changed == 0:
        return 0.5
    tail = float(bdtrc(float(n_lost), changed, 0.5)) if n_lost < changed else 0.0
    return tail + 0.5 * _chance_of(n_lost, changed)


def standard_error(values: FloatArray, clusters: IntArray | None = None) -> float | None:
    """Return the standard error of the mean of `values`, shape (n,); None if it cannot be estimated.

    Without clusters: sample standard deviation / sqrt(n). With clusters (index of each value's cluster, shape (n,),
    0 to C - 1): the cluster-robust one of `few_clusters`. It needs two values, or two clusters.
    """
    n = values.size
    if n < 2:
        return None
    if clusters is not None:
        return clustered_stderr(values, clusters)
    residuals = values - values.mean()
    return math.sqrt(float(residuals @ residuals) / (n - 1) / n)


def interval(spread: Spread, level: float = 0.95) -> tuple[float, float]:
    """Return low and high of the two-sided interval of the true change at `level`."""
    width = -t_quantile((1 - level) / 2, spread.df) * spread.stderr
    return spread.centre - width, spread.centre + width


def mean_interval(mean: float, stderr: float | None, units: int | None) -> tuple[float, float] | None:
    """Return the 95 % interval of a mean score; None if it is unknown.

    Mean +- 1.96 standard errors, within 0 and 1 where the mean is. Scores that are all equal have a standard error of
    0, but their mean is uncertain: it is taken as a share of `units` (samples or clusters), with the interval of Wilson
    1927. 0 of 100 gives 0 to .037.
    """
    if stderr is None:
        return None
    z = t_quantile(0.975, math.inf)
    is_share = 0 <= mean <= 1
    if stderr > _ZERO:
        low, high = mean - z * stderr, mean + z * stderr
        return (max(low, 0.0), min(high, 1.0)) if is_share else (low, high)
    if not units or not is_share:
        return None
    shrink = 1 + z * z / units
    centre = (mean + z * z / (2 * units)) / shrink
    half = z / shrink * math.sqrt(mean * (1 - mean) / units + (z / (2 * units)) ** 2)
    return max(centre - half, 0.0), min(centre + half, 1.0)


def loss_p(spread: Spread, margin: float) -> float:
    """Return the p of "the true change is -`margin` or below": p below alpha shows that less was lost.

    Answers that flip both ways in every cluster give a small standard error, but do not show that no cluster is lost as
    a whole: if one in twenty is, 40 clusters contain none in one case of ten. So the larger, cautious standard error is
    used.
    """
    return t_cdf(-(spread.centre + margin) / max(spread.stderr, spread.cautious), spread.df)


def tost_p(spread: Spread, margin: float) -> float:
    """Return the p of "the true change is at least `margin` in one direction": p below .05 shows equivalence.

    Two one-sided tests (Schuirmann 1987): the larger p of "change <= -margin" and "change >= margin"; below .05 exactly
    when the 90 % interval lies inside +-margin, without clusters.
    """
    return max(loss_p(spread, margin), loss_p(replace(spread, centre=-spread.centre), margin))


def mde(spread: Spread, alpha: float, power: float = 0.8) -> float:
    """Return the smallest true change that a one-sided test at `alpha` finds with `power`.

    (z_alpha + z_power) * stderr, with quantiles of t where the degrees of freedom are finite.
    """
    return (t_quantile(power, spread.df) - t_quantile(alpha, spread.df)) * spread.stderr


def t_cdf(x: float, df: float) -> float:
    """Return P(T <= x) of the t distribution; the normal one for infinite `df`."""
    if math.isinf(df):
        return float(ndtr(x))
    return float(stdtr(df, x))


def t_quantile(p: float, df: float) -> float:
    """Return the quantile of the t distribution at `p`; of the normal one for infinite `df`."""
    if math.isinf(df):
        return float(ndtri(p))
    return float(stdtrit(df, p))


def _chance_of(n_lost: int, changed: int) -> float:
    """Return P(X = n_lost), X ~ Binomial(changed, 1/2)."""
    log_pmf = gammaln(changed + 1) - gammaln(n_lost + 1) - gammaln(changed - n_lost + 1) - changed * math.log(2)
    return math.exp(log_pmf)


def _is_binary(scores: FloatArray) -> bool:
    return bool(np.all((scores == 0.0) | (scores == 1.0)))


def _mcnemar_test(n: int, lost: int, gained: int) -> PairedTest:
    delta = (gained - lost) / n
    variance = max((gained + lost) / n - delta * delta, 0.0) / (n - 1) if n > 1 else 0.0
    return PairedTest(
        method=MCNEMAR,
        n=n,
        delta=delta,
        stderr=math.sqrt(variance),
        p_worse=mcnemar_midp(lost, gained),
        p_better=mcnemar_midp(gained, lost),
        spread=_bonett_price(n, lost, gained),
        n_lost=lost,
        n_gained=gained,
    )


def _t_test(differences: FloatArray, clusters: IntArray | None, lost: int, gained: int) -> PairedTest:
    delta = float(differences.mean())
    sums, stderr, df = differences, standard_error(differences, clusters) or 0.0, differences.size - 1.0
    if clusters is not None:
        sums = np.bincount(clusters, weights=differences).astype(np.float64)
        known = clustered_mean(differences, clusters)
        df = 0.0 if known is None else known.df
    if stderr > _ZERO:
        p_worse, p_better = t_cdf(delta / stderr, df), t_cdf(-delta / stderr, df)
    else:
        # All differences are equal, or there is a single unit: t is undefined, so test the signs of the units.
        down, up = int(np.count_nonzero(sums < 0)), int(np.count_nonzero(sums > 0))
        p_worse, p_better = mcnemar_midp(down, up), mcnemar_midp(up, down)
    return PairedTest(
        method=PAIRED_T if clusters is None else CLUSTERED_T,
        n=differences.size,
        delta=delta,
        stderr=stderr,
        p_worse=p_worse,
        p_better=p_better,
        spread=_t_spread(differences, clusters, stderr, df),
        n_lost=lost,
        n_gained=gained,
    )


def _t_spread(differences: FloatArray, clusters: IntArray | None, stderr: float, df: float) -> Spread:
    delta = float(differences.mean())
    if df < 1:
        return Spread(centre=delta, stderr=1.0, df=math.inf)  # a single unit has no variance: assume 1
    if clusters is None:
        down, up = int(np.count_nonzero(differences < 0)), int(np.count_nonzero(differences > 0))
        few, cautious = down + up < FEW_CHANGED, _bonett_price(differences.size, down, up).stderr
    else:
        sums = np.bincount(clusters, weights=differences).astype(np.float64)
        few = int(np.count_nonzero(np.abs(sums) > _ZERO)) < FEW_CHANGED
        cautious = _one_more_cluster_each_way(sums, np.bincount(clusters))
    if few or stderr <= _ZERO:
        stderr = max(stderr, cautious)
    return Spread(centre=delta, stderr=stderr, df=df, cautious=0.0 if clusters is None else cautious)


def _one_more_cluster_each_way(sums: FloatArray, sizes: IntArray) -> float:
    """Return the standard error as if one more cluster had been lost as a whole and one more gained.

    The form of Bonett and Price for clusters: it equals theirs with clusters of one sample and 0/1 scores. The size of
    the added clusters is the root mean square of the sizes.
    """
    size = math.sqrt(float(np.mean(sizes.astype(np.float64) ** 2)))
    total = float(sizes.sum()) + 2 * size
    centre = float(sums.sum()) / total
    residuals = sums - centre * sizes
    return math.sqrt(float(residuals @ residuals) + 2 * size**2 * (1 + centre**2)) / total


def _bonett_price(n: int, lost: int, gained: int) -> Spread:
    """Bonett and Price 2012: as if one more pair had been lost and one more gained.

    Unlike the plain (Wald) form it does not shrink to a point if nothing changed: 0 of 100 gives +-2.7 points.
    """
    p_lost, p_gained = (lost + 1) / (n + 2), (gained + 1) / (n + 2)
    centre = p_gained - p_lost
    return Spread(centre=centre, stderr=math.sqrt((p_lost + p_gained - centre * centre) / (n + 2)), df=math.inf)
