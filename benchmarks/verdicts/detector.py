"""The shipped engine as a detector, fed checkpoint by checkpoint on the way that the product takes.

`make` also fits other simulators: whoever calls `reset(meta)` and `step(view)`, where `meta` has K, T_plan, n and alpha
and `view` has t and scores(k, t), can score the engine itself.
"""

from __future__ import annotations

import numpy as np

from benchmarks.verdicts.view import Bools, Detector, Meta, View
from tracker.domain.regression.detector import Level, Track, evidence_at
from tracker.domain.regression.score_matrix import ScoreMatrix, empty_matrix, inserted

DEFAULT = "tracker"
"""Name of the engine with its default settings."""

MIN_EFFECT = 0.01


class Tracker:
    """Every benchmark's tests at the newest checkpoint."""

    name = DEFAULT

    def reset(self, meta: Meta) -> None:
        """Begin a new run."""
        self._level = Level(alpha=meta["alpha"], planned=meta["T_plan"], benchmarks=meta["K"])
        self._matrices: list[ScoreMatrix] = [empty_matrix(int(n)) for n in meta["n"]]

    def step(self, view: View) -> Bools:
        """Return (K,): benchmarks with an alarm at the newest checkpoint."""
        self._matrices = [
            inserted(matrix, view.t, view.scores(k, view.t).astype(np.float64))
            for k, matrix in enumerate(self._matrices)
        ]
        rows = np.arange(view.t + 1)
        found = evidence_at([Track(scores=matrix, rows=rows) for matrix in self._matrices], self._level)
        return np.array([any(e.is_loss(MIN_EFFECT) for e in tests) for tests in found])


def make() -> list[Detector]:
    """Return the engine."""
    return [Tracker()]
