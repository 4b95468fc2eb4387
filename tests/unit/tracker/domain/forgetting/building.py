"""Builders of units for tests of the ledger."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from tracker.domain.forgetting.levels import LedgerSubject
from tracker.domain.regression.detector import Track
from tracker.domain.regression.jitter import TAU_START, Jitter
from tracker.domain.scores.matrix import ScoreMatrix, empty_matrix, inserted

JITTER = Jitter(tau2=TAU_START**2, variance=3 * TAU_START**4)


def matrix_from(values: ArrayLike) -> ScoreMatrix:
    """Return a matrix of `values`, shape (T, n); NaN: no score."""
    rows = np.asarray(values, dtype=np.float64)
    matrix = empty_matrix(rows.shape[1])
    for at, row in enumerate(rows):
        matrix = inserted(matrix, at, row)
    return matrix


def unit_of(values: ArrayLike, jitter: Jitter = JITTER) -> LedgerSubject:
    """Return a unit of `values`, shape (T, n), at steps 100, 200, ..."""
    matrix = matrix_from(values)
    count = matrix.means.size
    track = Track(scores=matrix, rows=np.arange(count))
    return LedgerSubject(track=track, counted=track.rows, jitter=jitter, steps=steps_of(count), higher_is_better=True)


def steps_of(count: int) -> tuple[int, ...]:
    """Return 100, 200, ..."""
    return tuple(range(100, 100 * count + 1, 100))


def levels(n: int, shares: Sequence[float]) -> np.ndarray:
    """Return (T, n) scores of samples of rising difficulty: the first `share` of them is right."""
    return (np.arange(n) < np.round(np.array(shares)[:, None] * n)).astype(np.float64)
