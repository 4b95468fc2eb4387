"""Is a checkpoint slower than its reference, and how sure is that? Pure.

    starts = block_starts(pairs, seed)
    contrast = paired_contrast(candidate_ms, reference_ms, 0.5, starts)     # L and its bootstrap error
    spread = inflated([contrast], overdispersion(past_z2), len(past_z2))    # an honest t distribution around L
    slower_p(spread); statistics.interval(spread)

L = log(quantile of the candidate / quantile of the reference): above 0 is slower.
Sources: Kuensch 1989 (moving-block bootstrap: requests close in time resemble each other); Bulej et al. 2020,
arXiv 2001.05811 (duet benchmarking: interleaved pairs are 2 to 12 times as accurate as one after the other);
McCullagh and Nelder 1989 section 4.5 (overdispersion).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

from tracker.domain.statistics import FloatArray, Spread

IntArray = NDArray[np.int64]

BLOCK = 10
"""Pairs of requests that are drawn together."""
DRAWS = 400
PRIOR_DF = 10
"""Weight of "the bootstrap error is right" against what earlier checkpoints showed."""
WINDOW = 30
"""Earlier checkpoints that noise is learned from."""
Z2_CAP = 9.0
"""One wild checkpoint says as much about the noise as three standard errors, and no more."""
MIN_STDERR = 1e-4
BASE = 10
"""Earlier checkpoints that a checkpoint without a reference is compared with."""
MIN_HISTORY_STDEV = 0.004
MIN_HISTORY_DF = 4.0


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """One checkpoint against its reference at one quantile of one metric."""

    log_ratio: float
    """L."""
    stderr: float
    """Moving-block bootstrap error of L; 0 when all draws agree."""

    @property
    def z2(self) -> float:
        """The squared standardized L: 1 on average when nothing but the requests scatters."""
        return (self.log_ratio / max(self.stderr, MIN_STDERR)) ** 2


def block_starts(pairs: int, seed: int) -> IntArray:
    """Return where the blocks of every draw begin, shape (DRAWS, pairs // BLOCK); `pairs` is at least BLOCK."""
    generator = np.random.default_rng(seed)
    return generator.integers(0, pairs - BLOCK + 1, size=(DRAWS, pairs // BLOCK))


def paired_contrast(candidate: FloatArray, reference: FloatArray, quantile: float, starts: IntArray) -> Contrast:
    """Compare paired times, both of shape (n,), in order of sending.

    Both sides are drawn by the same blocks of BLOCK neighbours that begin at `starts`, shape (draws, blocks).
    Exchanging the sides changes the sign of L and nothing else.
    """
    indices = (starts[:, :, None] + np.arange(BLOCK)).reshape(starts.shape[0], -1)
    draws = _log_quantile(candidate[indices], quantile) - _log_quantile(reference[indices], quantile)
    log_ratio = _log_quantile(candidate[None], quantile) - _log_quantile(reference[None], quantile)
    return Contrast(log_ratio=float(log_ratio[0]), stderr=float(draws.std(ddof=1)))


def overdispersion(past_z2: Sequence[float]) -> float:
    """Return how much larger the variance of L is than the bootstrap says, at least 1.

    (10 + sum of min(z^2, 9)) / (10 + h) over h earlier checkpoints: what differs between two starts of an engine is not
    in the scatter of requests within them.
    """
    total = PRIOR_DF + math.fsum(min(z2, Z2_CAP) for z2 in past_z2)
    return max(1.0, total / (PRIOR_DF + len(past_z2)))


def inflated(contrasts: Sequence[Contrast], factor: float, learned_from: int) -> Spread:
    """Return the mean L of m >= 1 checkpoints as a t distribution with 10 + `learned_from` degrees of freedom.

    Its error is sqrt(factor * sum of squared errors) / m, `factor` being the overdispersion.
    """
    count = len(contrasts)
    variance = math.fsum(max(c.stderr, MIN_STDERR) ** 2 for c in contrasts)
    return Spread(
        centre=math.fsum(c.log_ratio for c in contrasts) / count,
        stderr=math.sqrt(factor * variance) / count,
        df=PRIOR_DF + learned_from,
    )


def history_spread(log_time: float, history: Sequence[float]) -> Spread:
    """Return the change of a log time against the mean of the last 10 of `history`, at least 3 long, oldest first.

    The scatter is that of successive differences, the larger of a robust and a plain estimate: a slow drift is in both
    sides. The t tail has .6 * len(history) degrees of freedom, at least 4.
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


# --- private


def _log_quantile(rows: FloatArray, quantile: float) -> FloatArray:
    """Return the logarithm of each row's quantile, linear interpolation."""
    result: FloatArray = np.log(np.quantile(rows, quantile, axis=1))
    return result
