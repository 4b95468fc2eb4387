"""Variance of a contrast without a loss: its own item variance before the new block. Pure.

A loss increases the variance of the contrast that shows it: ten of 100 samples lost for good give a standard error of
three points, however many checkpoints are pooled. A test with the current variance therefore finds losses of small
benchmarks late or never. The same contrast at the checkpoints before the new block does not contain the loss.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracker.domain.records.types import Baseline
from tracker.domain.regression.blocks import BLOCK, Blocks
from tracker.domain.scores.matrix import MIN_VARIANCE, FloatArray, IntArray, ScoreMatrix

HISTORY = 30
"""Number of newest earlier checkpoints whose contrasts are used."""

MIN_HISTORY = 5

GUARD = 0.6
"""Minimum share of the current variance: else a model that starts to change more answers raises false alarms."""


def null_variances(
    scores: ScoreMatrix, rows: IntArray, chosen: Sequence[Blocks], since: int = 0
) -> tuple[float | None, ...]:
    """Return for each of `chosen` its mean earlier item variance, None with fewer than `MIN_HISTORY` contrasts.

    The last of `rows` is the candidate, where the new side of each of `chosen` ends. Only new blocks that start
    at index `since` of `rows` or later count.
    """
    order = np.concatenate([rows, *(b.base for b in chosen if b.baseline is Baseline.PINNED)])
    means = scores.means[order]
    pasts = [_past(means, rows.size, blocks, since) for blocks in chosen]
    sums = _sums(scores, order, pasts)
    found = (_variances(sums, past) for past in pasts)
    return tuple(float(variances.mean()) if variances.size >= MIN_HISTORY else None for variances in found)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Past:
    """The same contrast at earlier checkpoints: the positions at which its two blocks start."""

    new: IntArray
    """Shape (h,)."""
    m: int
    base: IntArray
    """Shape (h,)."""
    width: int

    def places(self) -> IntArray:
        new, base = self.new[:, np.newaxis] + np.arange(self.m), self.base[:, np.newaxis] + np.arange(self.width)
        return np.concatenate([new.ravel(), base.ravel()])


@dataclass(frozen=True, kw_only=True, eq=False)
class _Sums:
    """Cumulative sums over P checkpoints, starting with zero: the sum of a block is a difference of two."""

    n: int
    places: IntArray
    """Shape (P,), ascending: position of each checkpoint. Every block is included without gaps."""
    scores: FloatArray
    """Shape (P + 1,): of sums over samples / n."""
    products: FloatArray
    """Shape (P + 1, P + 1): of the products of rows."""
    missing: IntArray
    """Shape (P + 1,): of checkpoints with missing scores."""

    def product(self, one: IntArray, one_size: int, other: IntArray, other_size: int) -> FloatArray:
        p, ends, others = self.products, one + one_size, other + other_size
        return p[ends, others] - p[one, others] - p[ends, other] + p[one, other]


def _sums(scores: ScoreMatrix, order: IntArray, pasts: Sequence[_Past]) -> _Sums:
    n = max(scores.n_samples, 2)
    places = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *(past.places() for past in pasts)]))
    rows = order[places]
    products = np.zeros((rows.size + 1, rows.size + 1))
    np.cumsum(np.cumsum(scores.products(rows), axis=0), axis=1, out=products[1:, 1:])
    return _Sums(
        n=n,
        places=places,
        scores=np.concatenate([[0.0], np.cumsum(scores.sums[rows] / n)]),
        products=products,
        missing=np.concatenate([[0], np.cumsum(scores.missing[rows] > 0)]),
    )


def _past(means: FloatArray, seen: int, blocks: Blocks, since: int) -> _Past:
    m, newest = blocks.new.size, seen - 1
    new = np.arange(max(0, newest - m - HISTORY + 1), newest - m + 1) + 1 - m  # start of each earlier new block
    new = new[new >= since]
    base, width = _base(means, new, blocks, seen)
    return _Past(new=new[base >= 0], m=m, base=base[base >= 0], width=width)


def _variances(sums: _Sums, past: _Past) -> FloatArray:
    """Return the item variance of the same contrast at each earlier checkpoint without missing scores."""
    m, width = past.m, past.width
    new, base = np.searchsorted(sums.places, past.new), np.searchsorted(sums.places, past.base)
    whole = _block(sums.missing, new, m) + _block(sums.missing, base, width) == 0
    new, base = new[whole], base[whole]
    deltas = _block(sums.scores, new, m) / m - _block(sums.scores, base, width) / width
    squares = (
        sums.product(new, m, new, m) / m**2
        - 2 * sums.product(new, m, base, width) / (m * width)
        + sums.product(base, width, base, width) / width**2
    ) / sums.n
    return np.maximum(squares - deltas * deltas, MIN_VARIANCE) / (sums.n - 1)


def _block(sums: FloatArray | IntArray, first: IntArray, size: int) -> FloatArray | IntArray:
    return sums[first + size] - sums[first]


def _base(means: FloatArray, new: IntArray, blocks: Blocks, seen: int) -> tuple[IntArray, int]:
    """Return the start of the baseline block of each new block (-1: there is none), and its width."""
    if blocks.baseline is Baseline.PINNED:
        return np.full(new.shape, seen), 1
    if blocks.baseline is Baseline.PEAK:
        return _peak_starts(means, new, blocks.base.size), blocks.base.size
    return np.maximum(new - BLOCK, -1), BLOCK


def _peak_starts(means: FloatArray, ends: IntArray, width: int) -> IntArray:
    """Return the start of the best block before each of `ends`; -1 with fewer than two blocks."""
    counts = ends // width
    total = int(counts.max(initial=0))
    if total < 2:
        return np.full(ends.shape, -1)
    blocks = means[: total * width].reshape(total, width).mean(axis=1)
    highest = np.maximum.accumulate(blocks)
    is_new = np.concatenate([[True], highest[1:] > highest[:-1]])
    best = np.maximum.accumulate(np.where(is_new, np.arange(total), 0))
    return np.where(counts >= 2, best[np.maximum(counts, 1) - 1] * width, -1)
