"""Latency of a checkpoint relative to its reference, and the error of this ratio. Pure.

    contrast = LatencyContrast(*(paired_contrast(candidate_ms, reference_ms, 0.5, starts) for each of the two blocks))
    noise = SeriesNoise(between=between_variance(contrasts), factor=overdispersion(past_z2), learned_from=len(past_z2))
    spread = inflated([contrast], noise)                 # a t distribution around L
    slower_p(spread); statistics.interval(spread)

L = log(quantile of the candidate / quantile of the reference): above 0 is slower.
Sources: Kuensch 1989 (moving-block bootstrap: requests close in time resemble each other); Bulej et al. 2020,
arXiv 2001.05811 (duet benchmarking); Kalibera and Jones 2013 (starts of one program differ by more than its
repetitions); Paule and Mandel 1982 (variance between groups whose own errors differ); McCullagh and Nelder 1989
section 4.5 (overdispersion).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr

from tracker.domain.scores.matrix import FloatArray, IntArray
from tracker.domain.scores.statistics.paired import Spread

BLOCK = 10
"""Number of pairs of requests that are drawn together."""
DRAWS = 400
PRIOR_DF = 10
"""Weight of the prior "the bootstrap error is correct", in earlier checkpoints."""
WINDOW = 30
"""Number of earlier checkpoints from which noise is estimated."""
Z2_CAP = 9.0
"""Limit of z^2: an outlier counts no more than a checkpoint at three standard errors."""
MIN_STDERR = 1e-4
BETWEEN_SHARE = 0.75
NEWTON_STEPS = 50
NEWTON_TOLERANCE = 1e-13
BASE = 10
"""Number of earlier checkpoints that a checkpoint without a reference is compared with."""
MIN_HISTORY_STDEV = 0.004
MIN_HISTORY_DF = 4.0


@dataclass(frozen=True, kw_only=True)
class BlockContrast:
    """One block of the candidate against one of the reference, at one quantile of one metric."""

    log_ratio: float
    stderr: float
    """Moving-block bootstrap error of `log_ratio`; 0 if all draws agree."""


@dataclass(frozen=True)
class LatencyContrast:
    """One checkpoint against its reference at one quantile of one metric: two blocks of each."""

    first: BlockContrast
    second: BlockContrast

    @property
    def log_ratio(self) -> float:
        """L, the mean of both blocks: a steady drift over the blocks A B B A cancels out."""
        return (self.first.log_ratio + self.second.log_ratio) / 2

    @property
    def stderr(self) -> float:
        """Error of L from the scatter of requests."""
        return math.hypot(self.first.stderr, self.second.stderr) / 2


@dataclass(frozen=True, kw_only=True)
class SeriesNoise:
    """Error of L beyond the scatter of requests, estimated from the checkpoints of a series."""

    between: float = 0.0
    """Variance of L from starts of the engine and from states of the machine that last for a block."""
    factor: float = 1.0
    """Factor of the whole variance."""
    learned_from: int = 0
    """Number of checkpoints from which `factor` was estimated."""

    def z2(self, contrast: LatencyContrast) -> float:
        """Return the squared standardized L, before the factor: 1 on average if the noise is correct."""
        return contrast.log_ratio**2 / self._variance(contrast)

    def variance(self, contrast: LatencyContrast) -> float:
        """Return the variance of L."""
        return self.factor * self._variance(contrast)

    def _variance(self, contrast: LatencyContrast) -> float:
        return max(contrast.stderr, MIN_STDERR) ** 2 + self.between


def block_starts(pairs: int, seed: int) -> IntArray:
    """Return the starts of the blocks of every draw, shape (DRAWS, pairs // BLOCK); `pairs` is at least BLOCK."""
    generator = np.random.default_rng(seed)
    return generator.integers(0, pairs - BLOCK + 1, size=(DRAWS, pairs // BLOCK))


def paired_contrast(candidate: FloatArray, reference: FloatArray, quantile: float, starts: IntArray) -> BlockContrast:
    """Compare paired times, both of shape (n,), in order of sending.

    Both sides are drawn with the same blocks of BLOCK neighbours that start at `starts`, shape (draws, blocks).
    Exchanging the sides changes the sign of L and nothing else.
    """
    indices = (starts[:, :, None] + np.arange(BLOCK)).reshape(starts.shape[0], -1)
    draws = _log_quantile(candidate[indices], quantile) - _log_quantile(reference[indices], quantile)
    log_ratio = _log_quantile(candidate[None], quantile) - _log_quantile(reference[None], quantile)
    return BlockContrast(log_ratio=float(log_ratio[0]), stderr=float(draws.std(ddof=1)))


def between_variance(contrasts: Sequence[LatencyContrast]) -> float:
    """Return the variance of L that its error does not include, from the disagreement of the blocks of each checkpoint.

    `contrasts` has one checkpoint or more, in any order.

    A slower model moves both blocks alike, so slower checkpoints can be used too. With a variance s^2 between starts
    and w^2 between blocks, the disagreement of blocks A B B A has the variance 2 s^2 + 4 w^2 and L 3/2 s^2 + w^2: at
    most 3/4 of it. The estimate is Paule and Mandel's, under which (disagreement / its error)^2 is 1 on average.
    """
    disagreed2 = np.array([(c.first.log_ratio - c.second.log_ratio) ** 2 for c in contrasts])
    known = np.array([4 * max(c.stderr, MIN_STDERR) ** 2 for c in contrasts])

    between = 0.0
    for _ in range(NEWTON_STEPS):
        weights = 1 / (known + between / BETWEEN_SHARE)
        mean = float(np.mean(disagreed2 * weights))
        if mean <= 1 + NEWTON_TOLERANCE:
            break
        # Newton's step for 1 / mean = 1, which is almost linear in `between` and approached from below.
        between += mean * (mean - 1) * BETWEEN_SHARE / float(np.mean(disagreed2 * weights**2))
    return between


def overdispersion(past_z2: Sequence[float]) -> float:
    """Return the factor of the variance of L, at least 1.

    (10 + sum of min(z^2, 9)) / (10 + h) over h earlier checkpoints: all other causes of their scatter.
    """
    total = PRIOR_DF + math.fsum(min(z2, Z2_CAP) for z2 in past_z2)
    return max(1.0, total / (PRIOR_DF + len(past_z2)))


def inflated(contrasts: Sequence[LatencyContrast], noise: SeriesNoise) -> Spread:
    """Return the mean L of m >= 1 checkpoints as a t distribution with 10 + `learned_from` degrees of freedom."""
    count = len(contrasts)
    return Spread(
        centre=math.fsum(c.log_ratio for c in contrasts) / count,
        stderr=math.sqrt(math.fsum(noise.variance(c) for c in contrasts)) / count,
        df=PRIOR_DF + noise.learned_from,
    )


def history_spread(log_time: float, history: Sequence[float]) -> Spread:
    """Return the change of a log time from the mean of the last 10 of `history`, at least 3 long, oldest first.

    The scatter is that of successive differences, which a slow drift hardly affects: the larger of a robust and a plain
    estimate. The t tail has .6 * len(history) degrees of freedom, at least 4.
    """
    past = np.asarray(history, dtype=np.float64)
    steps = np.diff(past) / math.sqrt(2)
    stdev = max(1.4826 * float(np.median(np.abs(steps))), float(steps.std(ddof=1)), MIN_HISTORY_STDEV)
    base = past[-BASE:]
    return Spread(
        centre=log_time - float(base.mean()),
        stderr=stdev * math.sqrt(1 + 1 / base.size),
        df=max(MIN_HISTORY_DF, 0.6 * past.size),
    )


def slower_p(spread: Spread) -> float:
    """Return the one-sided p of "slower"; 1 minus it is that of "faster"."""
    return float(stdtr(spread.df, -spread.centre / spread.stderr))


def faster_p(spread: Spread) -> float:
    """Return the one-sided p of "faster"."""
    return float(stdtr(spread.df, spread.centre / spread.stderr))


def _log_quantile(rows: FloatArray, quantile: float) -> FloatArray:
    result: FloatArray = np.log(np.quantile(rows, quantile, axis=1))
    return result
