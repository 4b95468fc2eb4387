"""Lost and gained samples between two sides: the one definition that every view uses. Pure."""

from dataclasses import dataclass

import numpy as np

from tracker.domain.scores.matrix import NO_VALUE, BoolArray, IntArray, ScoreMatrix

KNOWN = 0.8
"""Minimum share of right answers of a known sample."""

UNKNOWN = 0.2
"""Maximum share of right answers of an unknown sample."""

RIGHT = 0.5
"""A score above this is correct."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Flips:
    """Which samples changed between two sides, each of shape (n,)."""

    is_lost: BoolArray
    """Known on the side of the baseline, unknown on the new side."""
    is_gained: BoolArray
    is_kept: BoolArray
    """Known on both sides."""
    is_scored: BoolArray
    """Scored at half or more of the checkpoints of each side."""

    def counts(self) -> tuple[int, int]:
        """Return the numbers of lost and of gained samples."""
        return int(np.count_nonzero(self.is_lost)), int(np.count_nonzero(self.is_gained))


def flips(matrix: ScoreMatrix, new: IntArray, base: IntArray) -> Flips:
    """Return the samples that changed from rows `base` to rows `new`: the one definition of a lost sample."""
    known, unknown, scored = _knowledge_at(matrix, new)
    known_before, unknown_before, scored_before = _knowledge_at(matrix, base)
    scored &= scored_before
    return Flips(
        is_lost=scored & known_before & unknown,
        is_gained=scored & unknown_before & known,
        is_kept=scored & known_before & known,
        is_scored=scored,
    )


def _knowledge_at(matrix: ScoreMatrix, rows: IntArray) -> tuple[BoolArray, BoolArray, BoolArray]:
    """Return which samples are right at `KNOWN` of the scores or more, at `UNKNOWN` or less, and scored at half."""
    codes = matrix.codes[rows]
    first_right = np.searchsorted(matrix.palette[1:], RIGHT, side="right") + 1
    # In fifths, as whole numbers; with the smallest type that has them, several times faster.
    fifth = np.uint8(5) if 5 * rows.size <= np.iinfo(np.uint8).max else np.uint32(5)
    right = fifth * (codes >= first_right).sum(axis=0, dtype=fifth.dtype)
    scored = (codes != NO_VALUE).sum(axis=0, dtype=fifth.dtype)
    most = fifth.dtype.type(5 * KNOWN) * scored
    is_scored = (scored > 0) & (fifth.dtype.type(2) * scored >= rows.size)
    return right >= most, right <= scored, is_scored
