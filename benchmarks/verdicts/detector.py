"""The shipped engine as a detector, fed checkpoint by checkpoint on the way that the product takes.

`make` also fits other simulators: whoever calls `reset(meta)` and `step(view)`, where `meta` has K, T_plan, n, groups
and alpha and `view` has t and scores(k, t), can score the engine itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from benchmarks.verdicts.view import Bools, Detector, Meta, View
from tracker.domain.regression.budget import DEFAULT as WEIGHTED
from tracker.domain.regression.budget import ONE_SIZE, PLAIN, SCORE_SHARE, Design
from tracker.domain.regression.detector import Evidence, Level, Track, evidence_at
from tracker.domain.regression.score_matrix import ScoreMatrix, empty_matrix, inserted
from tracker.domain.regression.subsets import Grouping, grouping_of, subset_evidence
from tracker.domain.types import Policy

DEFAULT = "tracker"
"""Name of the engine for benchmarks without subsets."""


class Tracker:
    """Every benchmark's tests at the newest checkpoint, with the product's defaults and share of alpha for scores."""

    def __init__(self, name: str, *, with_subsets: bool = False, design: Design = WEIGHTED) -> None:
        self.name = name
        self._design = design
        self._with_subsets = with_subsets

    def reset(self, meta: Meta) -> None:
        """Begin a new run."""
        share = SCORE_SHARE / 2 if self._with_subsets else SCORE_SHARE
        level = Level(alpha=meta["alpha"] * share, planned=meta["T_plan"], benchmarks=meta["K"])
        self._level = replace(level, design=self._design)
        self._groupings = [grouping_of([str(group) for group in groups]) for groups in meta["groups"]]
        self._matrices = [empty_matrix(int(n)) for n in meta["n"]]

    def step(self, view: View) -> Bools:
        """Return (K,): benchmarks with an alarm at the newest checkpoint, by themselves or by one of their subsets."""
        for k, matrix in enumerate(self._matrices):
            self._matrices[k] = inserted(matrix, view.t, view.scores(k, view.t).astype(np.float64))
        tracks = [Track(scores=matrix, rows=np.arange(view.t + 1)) for matrix in self._matrices]
        flags = np.array([_any_loss(tests, Policy.min_effect) for tests in evidence_at(tracks, self._level)])
        if self._with_subsets:
            parts = zip(self._matrices, tracks, self._groupings, strict=True)
            flags |= np.array([self._in_a_subset(*part) for part in parts])
        return flags

    def _in_a_subset(self, matrix: ScoreMatrix, track: Track, grouping: Grouping) -> bool:
        found = subset_evidence(matrix, track, grouping, replace(self._level, design=ONE_SIZE))
        return any(_any_loss(tests, Policy.subset_min_effect) for tests in found.values())


def make() -> list[Detector]:
    """Return the engine, with the tests of subsets, and with equal shares and the variance of now."""
    return [
        Tracker(DEFAULT),
        Tracker(f"{DEFAULT}+subsets", with_subsets=True),
        Tracker(f"{DEFAULT}-plain", design=PLAIN),
    ]


# --- private


def _any_loss(tests: Iterable[Evidence], min_effect: float) -> bool:
    return any(test.is_loss(min_effect) for test in tests)
