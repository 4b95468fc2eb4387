"""How much a contrast varies when nothing is lost: its own item variance before the new block. Pure.

A loss adds to the variance of the very contrast that shows it: ten samples of 100 lost for good are three points of
standard error, at however many checkpoints, so that a test on the variance of now finds small benchmarks' losses late
or never. The same contrast at the checkpoints up to the new block has seen nothing of the loss.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracker.domain.regression.blocks import BLOCK, Blocks
from tracker.domain.regression.score_matrix import FloatArray, IntArray, ScoreMatrix
from tracker.domain.types import Baseline

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
    weights = [_past_weights(scores.means, rows, blocks, since) for blocks in chosen]
    sizes = [len(w) for w in weights]
    if not sum(sizes):
        return (None,) * len(weights)
    variances = scores.item_variances(np.concatenate(weights))
    return tuple(_mean(part) for part in np.split(variances, np.cumsum(sizes)[:-1]))


# --- private


def _mean(variances: FloatArray) -> float | None:
    known = variances[~np.isnan(variances)]
    return float(known.mean()) if known.size >= MIN_HISTORY else None


def _past_weights(means: FloatArray, rows: IntArray, blocks: Blocks, since: int) -> FloatArray:
    """Return the weights of the same contrast as of each past checkpoint, shape (h, T)."""
    m, newest = blocks.new.size, rows.size - 1
    ends = np.arange(max(0, newest - m - HISTORY + 1), newest - m + 1) + 1 - m  # first of the new block, as of then
    ends = ends[ends >= max(since, 0)]
    weights = np.zeros((ends.size, means.size))
    if blocks.baseline is Baseline.PEAK:
        starts, width = _peak_starts(means[rows], ends, blocks.base.size), blocks.base.size
    else:
        starts, width = ends - BLOCK, BLOCK
    if blocks.baseline is Baseline.PINNED:
        starts = np.zeros_like(ends)
        weights[:, blocks.base] = -1.0
    kept = starts >= 0
    at, ends, starts = np.arange(rows.size), ends[kept, None], starts[kept, None]
    new = (at >= ends) & (at < ends + m)
    base = (at >= starts) & (at < starts + width) & (blocks.baseline is not Baseline.PINNED)
    weights = weights[kept]
    weights[:, rows] += new / m - base / width
    return weights


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
