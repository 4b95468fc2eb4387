"""Variance of a contrast without a loss: its own item variance before the new block. Pure.

A loss increases the variance of the contrast that shows it: ten of 100 samples lost for good give a standard error of
three points, however many checkpoints are pooled. A test with the current variance therefore finds losses of small
benchmarks late or never. The same contrast at the checkpoints before the new block does not contain the loss.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracker.domain.records.types import Baseline
from tracker.domain.regression.blocks import BLOCK, Blocks
from tracker.domain.scores.matrix import MIN_VARIANCE, BoolArray, FloatArray, IntArray, ScoreMatrix

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
    widths = {blocks.base.size for blocks in chosen if blocks.baseline is Baseline.PEAK}
    peaks = {width: _peak_starts(means[: rows.size], width) for width in widths}
    pasts = [_past(blocks, rows.size, since, peaks) for blocks in chosen]
    variances, found, end = _variances(scores, order, _joined(pasts)), [], 0
    for past in pasts:
        first, end = end, end + past.new.size
        found.append(_mean(variances[first:end]))
    return tuple(found)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Past:
    """Contrasts at earlier checkpoints: the positions at which their two blocks start, and their sizes."""

    new: IntArray
    """Shape (h,)."""
    m: IntArray
    """Shape (h,)."""
    base: IntArray
    """Shape (h,)."""
    width: IntArray
    """Shape (h,)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Side:
    """One side of H contrasts: first and last + 1 checkpoint among those in use; each of shape (H,)."""

    first: IntArray
    end: IntArray
    size: IntArray


def _joined(pasts: Sequence[_Past]) -> _Past:
    return _Past(
        new=np.concatenate([past.new for past in pasts]),
        m=np.concatenate([past.m for past in pasts]),
        base=np.concatenate([past.base for past in pasts]),
        width=np.concatenate([past.width for past in pasts]),
    )


def _mean(variances: FloatArray) -> float | None:
    known = variances[~np.isnan(variances)]
    return float(known.mean()) if known.size >= MIN_HISTORY else None


def _variances(scores: ScoreMatrix, order: IntArray, past: _Past) -> FloatArray:
    """Return the item variance of each earlier contrast; NaN if a checkpoint has missing scores.

    Each side is a block without gaps, so from cumulative sums its sum is a difference of two.
    """
    is_used = _covered(past, order.size)
    at, rows, n = np.cumsum(is_used) - 1, order[is_used], max(scores.n_samples, 2)
    new = _Side(first=at[past.new], end=at[past.new] + past.m, size=past.m)
    base = _Side(first=at[past.base], end=at[past.base] + past.width, size=past.width)
    means = np.concatenate([[0.0], np.cumsum(scores.sums[rows] / n)])
    partial = np.concatenate([[0], np.cumsum(scores.missing[rows] > 0)])
    products = np.zeros((rows.size + 1, rows.size + 1))
    np.cumsum(np.cumsum(scores.products(rows), axis=0), axis=1, out=products[1:, 1:])
    deltas = _mean_of(means, new) - _mean_of(means, base)
    squares = _product(products, new, new) - 2 * _product(products, new, base) + _product(products, base, base)
    variances = np.maximum(squares / n - deltas * deltas, MIN_VARIANCE) / (n - 1)
    return np.where(_mean_of(partial, new) + _mean_of(partial, base) == 0, variances, np.nan)


def _covered(past: _Past, checkpoints: int) -> BoolArray:
    """Return whether each checkpoint is in a block, shape (checkpoints,)."""
    firsts = np.concatenate([past.new, past.base])
    ends = firsts + np.concatenate([past.m, past.width])
    changes = np.bincount(firsts, minlength=checkpoints + 1) - np.bincount(ends, minlength=checkpoints + 1)
    covered: BoolArray = np.cumsum(changes)[:-1] > 0
    return covered


def _mean_of(sums: FloatArray | IntArray, side: _Side) -> FloatArray:
    means: FloatArray = (sums[side.end] - sums[side.first]) / side.size
    return means


def _product(products: FloatArray, one: _Side, other: _Side) -> FloatArray:
    """Return the sums over samples of the product of two sides, from cumulative sums of those of checkpoints."""
    flat, ends, firsts = products.ravel(), one.end * len(products), one.first * len(products)
    of_end = flat[ends + other.end] - flat[ends + other.first]
    of_first = flat[firsts + other.end] - flat[firsts + other.first]
    sums: FloatArray = (of_end - of_first) / (one.size * other.size)
    return sums


def _past(blocks: Blocks, seen: int, since: int, peaks: Mapping[int, IntArray]) -> _Past:
    m, newest = blocks.new.size, seen - 1
    new = np.arange(max(0, newest - m - HISTORY + 1), newest - m + 1) + 1 - m  # start of each earlier new block
    new = new[new >= since]
    base, width = _base(new, blocks, seen, peaks)
    new, base = new[base >= 0], base[base >= 0]
    return _Past(new=new, m=np.full(new.shape, m), base=base, width=np.full(new.shape, width))


def _base(new: IntArray, blocks: Blocks, seen: int, peaks: Mapping[int, IntArray]) -> tuple[IntArray, int]:
    """Return the start of the baseline block of each new block (-1: there is none), and its width."""
    if blocks.baseline is Baseline.PINNED:
        return np.full(new.shape, seen), 1
    if blocks.baseline is Baseline.PEAK:
        width = blocks.base.size
        return peaks[width][new // width], width
    return np.maximum(new - BLOCK, -1), BLOCK


def _peak_starts(means: FloatArray, width: int) -> IntArray:
    """Return the start of the best of the first c blocks of `width`, shape (c + 1,) from 0 on; -1 below two blocks."""
    total = means.size // width
    blocks = means[: total * width].reshape(total, width).mean(axis=1)
    highest = np.maximum.accumulate(blocks)
    is_new = np.concatenate([[True], highest[1:] > highest[:-1]])[:total]
    best = np.maximum.accumulate(np.where(is_new, np.arange(total), 0)) * width
    return np.concatenate([[-1, -1], best[1:]])
