"""Score tables as the engine wants them."""

from collections.abc import Sequence

import numpy as np

from tracker.domain.regression.detector import ErrorBudget, Evidence, Track, evidence_of, jitter_of
from tracker.domain.scores.matrix import FloatArray, ScoreMatrix, empty_matrix, inserted


def matrix_of(table: FloatArray) -> ScoreMatrix:
    """Insert the rows of `table`, shape (T, n), one by one."""
    matrix = empty_matrix(table.shape[1])
    for position, row in enumerate(table):
        matrix = inserted(matrix, position, row)
    return matrix


def track_of(table: FloatArray) -> Track:
    """All checkpoints count; the last one is the candidate."""
    return Track(scores=matrix_of(table), rows=np.arange(len(table)))


def evidence_at(tracks: Sequence[Track], level: ErrorBudget) -> tuple[tuple[Evidence, ...], ...]:
    """Return the tests of every benchmark of a suite at its candidate."""
    return tuple(evidence_of(track, jitter, level) for track, jitter in zip(tracks, jitter_of(tracks), strict=True))


def table_of(rows: Sequence[str]) -> FloatArray:
    """Return rows of digits as scores."""
    return np.array([[float(c) for c in row] for row in rows])


def flipping(seed: int, checkpoints: int, n: int = 200, ability: float = 0.6, flips: float = 0.1) -> FloatArray:
    """Return a healthy run: samples are redrawn by chance, the ability stays."""
    rng = np.random.default_rng(seed)
    rows = [rng.random(n) < ability]
    for _ in range(checkpoints - 1):
        rows.append(np.where(rng.random(n) < flips, rng.random(n) < ability, rows[-1]))
    return np.array(rows, dtype=np.float64)
