"""Checkpoints to average on each side of a test: the newest m, and a baseline block before them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tracker.domain.records.types import Baseline
from tracker.domain.scores.matrix import FloatArray, IntArray

BLOCK = 10
"""Checkpoints per baseline block. After 100 checkpoints, the best block of 10 is too high by 0.6 standard errors, the
best single checkpoint by 2.5."""

_JUMP = 6.0
"""Size of a jump, in standard deviations of the change from one checkpoint to the next."""

_QUARTILE = 0.6745
"""Third quartile of the standard normal distribution."""

_MIN_BLOCKS = 2


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """The two sides of a test, as rows of a score matrix."""

    baseline: Baseline
    new: IntArray
    """Shape (m,)."""
    base: IntArray
    """Shape (W,)."""
    selected_from: int = 1
    """Number of blocks that the baseline is the best of; the p-value is multiplied by it."""

    def weights(self, n_rows: int) -> FloatArray:
        """Return the weights of the contrast over all rows, shape (n_rows,)."""
        weights = np.zeros(n_rows)
        weights[self.new] = 1 / self.new.size
        weights[self.base] -= 1 / self.base.size
        return weights


def peak_width(planned: int | None, seen: int) -> int:
    """Return W of the peak: 10, or less for a run of fewer than 50 checkpoints (planned, else seen so far)."""
    return min(BLOCK, max(2, (planned or seen) // 5))


def recent_blocks(rows: IntArray, m: int) -> Blocks | None:
    """Return the newest `m` of `rows` and up to 10 just before them; None if none is earlier."""
    end = rows.size - m
    if end < 1:
        return None
    return Blocks(baseline=Baseline.RECENT, new=rows[end:], base=rows[max(0, end - BLOCK) : end])


def peak_blocks(rows: IntArray, means: FloatArray, m: int, width: int, end: int | None = None) -> Blocks | None:
    """Return the newest `m` of `rows` and the best of the disjoint blocks of `width` before; None below two blocks.

    `means` holds the mean score of every row of the matrix, `end` is the index into `rows` at which an open loss began:
    a block with lost checkpoints is no peak.
    """
    count = (rows.size - m) // width
    if count < _MIN_BLOCKS:
        return None
    start = 0
    if end is not None and end < count * width:
        width = min(width, end)
        if width == 0:
            return None
        count = end // width
        start = end - count * width  # the newest block is the one just before the loss
    blocks = rows[start : start + count * width].reshape(count, width)
    best = int(means[blocks].mean(axis=1).argmax())
    return Blocks(baseline=Baseline.PEAK, new=rows[rows.size - m :], base=blocks[best], selected_from=count)


def second_difference_weights(rows: IntArray, means: FloatArray, limit: int, size: int = 1) -> FloatArray:
    """Return weights (1, -2, 1) / `size` of triples of neighbouring blocks of `size`, oldest first, shape (h, T).

    Triples are taken from those of `newest_of`; `means` holds the mean score of every row of the matrix.
    """
    newest = newest_of(rows, limit)
    (starts,) = triple_starts(means[newest], (size,))
    weights = np.zeros((starts.size, means.size))
    weights[:, newest] = triple_weights(starts, size, newest.size)
    return weights


def newest_of(rows: IntArray, limit: int) -> IntArray:
    """Return the newest of `rows`, of which single ones give `limit` triples."""
    return rows[max(0, rows.size - 2 - limit) :]


def triple_starts(means: FloatArray, sizes: Sequence[int]) -> tuple[IntArray, ...]:
    """Return for each of `sizes` where a triple of blocks starts, ascending; `means` of the R checkpoints, shape (R,).

    Those of larger blocks have no jump within: a score that once moves to another level, at a loss or when a skill is
    learned, would look like noise that lasts.
    """
    jumps = _jumps_before(means)
    found = []
    for size in sizes:
        starts = np.arange(max(0, means.size - 3 * size + 1))
        found.append(starts if size == 1 else starts[jumps[starts + 3 * size - 1] == jumps[starts]])
    return tuple(found)


def median_of(values: FloatArray) -> float:
    """Return the median of some dozens of numbers, several times faster than NumPy does."""
    ordered, middle = np.sort(values), values.size // 2
    return float(ordered[middle] + ordered[~middle]) / 2


def triple_weights(starts: IntArray, size: int, checkpoints: int) -> FloatArray:
    """Return weights (1, -2, 1) / `size` of triples of blocks that start at `starts`, shape (h, checkpoints)."""
    return _triple_weights(starts.tobytes(), size, checkpoints)


@lru_cache(maxsize=64)
def _triple_weights(starts_bytes: bytes, size: int, checkpoints: int) -> FloatArray:
    """Return the weights for int64 starts: those of most benchmarks are the same."""
    starts = np.frombuffer(starts_bytes, dtype=np.int64)
    weights = np.zeros((starts.size, checkpoints))
    places = starts[:, np.newaxis] + np.arange(3 * size)
    weights[np.arange(starts.size)[:, np.newaxis], places] = np.repeat((1.0, -2.0, 1.0), size) / size
    weights.flags.writeable = False
    return weights


def _jumps_before(means: FloatArray) -> IntArray:
    """Return the number of jumps up to each checkpoint, shape (T,)."""
    moves = np.abs(np.diff(means))
    typical = median_of(moves) / _QUARTILE if moves.size else 0.0
    jumps: IntArray = np.concatenate([[0], np.cumsum(moves > _JUMP * typical)])
    return jumps
