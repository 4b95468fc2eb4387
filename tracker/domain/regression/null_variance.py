"""How much a contrast varies when nothing is lost: its own item variance before the new block. Pure.

A loss adds to the variance of the very contrast that shows it: ten samples of 100 lost for good are three points of
standard error, at however many checkpoints, so that a test on the variance of now finds small benchmarks' losses late
or never. The same contrast at the checkpoints up to the new block has seen nothing of the loss.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracker.domain.records.types import Baseline
from tracker.domain.regression.blocks import BLOCK, Blocks
from tracker.domain.scores.matrix import MIN_VARIANCE, FloatArray, IntArray, ScoreMatrix

HISTORY = 30
"""Earlier checkpoints whose contrasts count: the newest ones."""

MIN_HISTORY = 5

GUARD = 0.6
"""Of the variance of now, at least: else a model that begins to change more of its answers raises false alarms."""


def null_variances(
    scores: ScoreMatrix, rows: IntArray, chosen: Sequence[Blocks], since: int = 0
) -> tuple[float | None, ...]:
    """Return for each of `chosen` the mean item variance of its past, None with fewer than `MIN_HISTORY` contrasts.

    Args:
        scores: of the benchmark.
        rows: those that count, the candidate last.
        chosen: blocks whose new side ends at the candidate.
        since: index into `rows`; new blocks from there on count.
    """
    order = np.concatenate([rows, *(b.base for b in chosen if b.baseline is Baseline.PINNED)])
    means = scores.means[order]
    pasts = [_past(means, rows.size, blocks, since) for blocks in chosen]
    sums = _sums(scores, order, pasts)
    return tuple(_mean(_variances(sums, past)) for past in pasts)


# --- private


@dataclass(frozen=True, kw_only=True, eq=False)
class _Past:
    """The same contrast as of earlier checkpoints: where its two blocks began, in the order of the checkpoints."""

    new: IntArray
    """Shape (h,)."""
    m: int
    base: IntArray
    """Shape (h,)."""
    width: int

    def places(self) -> IntArray:
        """Return the place of every checkpoint of every block."""
        new, base = self.new[:, np.newaxis] + np.arange(self.m), self.base[:, np.newaxis] + np.arange(self.width)
        places: IntArray = np.concatenate([new.ravel(), base.ravel()])
        return places


@dataclass(frozen=True, kw_only=True, eq=False)
class _Sums:
    """Sums over the first of P checkpoints, with a zero in front: a block's sum is a difference of two."""

    n: int
    places: IntArray
    """Shape (P,), ascending: place of each checkpoint in their order. Every block is there without a hole."""
    scores: FloatArray
    """Shape (P + 1,): of sums over samples / n."""
    products: FloatArray
    """Shape (P + 1, P + 1): of the products of rows."""
    missing: IntArray
    """Shape (P + 1,): of checkpoints that lack scores."""

    def at(self, first: IntArray) -> IntArray:
        """Return where in `places` each of `first` is."""
        found: IntArray = np.searchsorted(self.places, first)
        return found

    def block(self, first: IntArray, size: int) -> FloatArray:
        found: FloatArray = self.scores[first + size] - self.scores[first]
        return found

    def product(self, one: IntArray, one_size: int, other: IntArray, other_size: int) -> FloatArray:
        p, ends, others = self.products, one + one_size, other + other_size
        found: FloatArray = p[ends, others] - p[one, others] - p[ends, other] + p[one, other]
        return found

    def lacks(self, first: IntArray, size: int) -> IntArray:
        found: IntArray = self.missing[first + size] - self.missing[first]
        return found


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


def _mean(variances: FloatArray) -> float | None:
    if variances.size >= MIN_HISTORY:
        return float(variances.mean())
    return None


def _past(means: FloatArray, seen: int, blocks: Blocks, since: int) -> _Past:
    m, newest = blocks.new.size, seen - 1
    new = np.arange(max(0, newest - m - HISTORY + 1), newest - m + 1) + 1 - m  # first of the new block, as of then
    new = new[new >= since]
    base, width = _base(means, new, blocks, seen)
    return _Past(new=new[base >= 0], m=m, base=base[base >= 0], width=width)


def _variances(sums: _Sums, past: _Past) -> FloatArray:
    """Return the item variance of the same contrast as of each past checkpoint where no score was missing."""
    m, width = past.m, past.width
    new, base = sums.at(past.new), sums.at(past.base)
    whole = (sums.lacks(new, m) + sums.lacks(base, width)) == 0
    new, base = new[whole], base[whole]
    deltas = sums.block(new, m) / m - sums.block(base, width) / width
    squares = (
        sums.product(new, m, new, m) / m**2
        - 2 * sums.product(new, m, base, width) / (m * width)
        + sums.product(base, width, base, width) / width**2
    ) / sums.n
    variances: FloatArray = np.maximum(squares - deltas * deltas, MIN_VARIANCE) / (sums.n - 1)
    return variances


def _base(means: FloatArray, new: IntArray, blocks: Blocks, seen: int) -> tuple[IntArray, int]:
    """Return where the baseline block began for each new block, -1 where there was none, and its width."""
    if blocks.baseline is Baseline.PINNED:
        return np.full(new.shape, seen), 1
    if blocks.baseline is Baseline.PEAK:
        return _peak_starts(means, new, blocks.base.size), blocks.base.size
    return np.maximum(new - BLOCK, -1), BLOCK


def _peak_starts(means: FloatArray, ends: IntArray, width: int) -> IntArray:
    """Return where the best block before each of `ends` began; -1 with fewer than two blocks."""
    counts = ends // width
    total = int(counts.max(initial=0))
    if total < 2:
        return np.full(ends.shape, -1)
    blocks = means[: total * width].reshape(total, width).mean(axis=1)
    highest = np.maximum.accumulate(blocks)
    is_new = np.concatenate([[True], highest[1:] > highest[:-1]])
    best = np.maximum.accumulate(np.where(is_new, np.arange(total), 0))
    starts: IntArray = np.where(counts >= 2, best[np.maximum(counts, 1) - 1] * width, -1)
    return starts
