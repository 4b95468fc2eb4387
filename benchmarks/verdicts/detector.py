"""The shipped engine as a detector, fed checkpoint by checkpoint on the way that the product takes.

`make` also fits other simulators: whoever calls `reset(meta)` and `step(view)`, where `meta` has K, T_plan, n, groups
and alpha and `view` has t and scores(k, t), can score the engine itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from benchmarks.verdicts.view import Bools, Detector, Meta, Seen
from tracker.domain.records.grouping import Grouping, grouping_of
from tracker.domain.records.types import Policy
from tracker.domain.regression.budget import DEFAULT as WEIGHTED
from tracker.domain.regression.budget import ONE_SIZE, PLAIN, SCORE_SHARE
from tracker.domain.regression.detector import ErrorBudget, Evidence, Track, evidence_of, jitter_of
from tracker.domain.regression.subsets import subset_evidence
from tracker.domain.scores.matrix import ScoreMatrix, empty_matrix, inserted
from tracker.domain.verdicts.hypothesis import strongest_of

DEFAULT = "tracker"
"""Name of the engine for benchmarks without subsets."""

DESIGNS = {"weighted": WEIGHTED, "plain": PLAIN}


class Engine:
    """The engine along one run; detectors that share one let it do each checkpoint's work once."""

    def reset(self, meta: Meta) -> None:
        """Begin a new run."""
        self.level = ErrorBudget(alpha=meta["alpha"] * SCORE_SHARE, planned=meta["T_plan"], benchmarks=meta["K"])
        self._matrices = [empty_matrix(int(n)) for n in meta["n"]]
        self._tests: dict[str, tuple[tuple[Evidence, ...], ...]] = {}
        self._lost_from: dict[int, int] = {}

    def matrices(self, view: Seen) -> list[ScoreMatrix]:
        """Return the scores of each benchmark up to the newest checkpoint."""
        if self._matrices[0].sums.size == view.t:
            self._tests.clear()
            for k, matrix in enumerate(self._matrices):
                self._matrices[k] = inserted(matrix, view.t, view.scores(k, view.t).astype(np.float64))
        return self._matrices

    def tests(self, view: Seen, design: str) -> tuple[tuple[Evidence, ...], ...]:
        """Return the tests of each benchmark at the newest checkpoint; `design` is a key of `DESIGNS`."""
        matrices = self.matrices(view)
        if design not in self._tests:
            tracks = [replace(_track(m), noise_to=self._lost_from.get(k)) for k, m in enumerate(matrices)]
            level = replace(self.level, design=DESIGNS[design])
            jitters = jitter_of(tracks)
            self._tests[design] = tuple(evidence_of(t, j, level) for t, j in zip(tracks, jitters, strict=True))
            self._open_losses(self._tests[design])
        return self._tests[design]

    def _open_losses(self, tests: Sequence[Sequence[Evidence]]) -> None:
        """Keep the onset of each loss: the jitter is that of the checkpoints before. No planted loss ends."""
        for k, found in enumerate(tests):
            losses = [test for test in found if test.is_loss(Policy.min_effect)]
            if losses and k not in self._lost_from:
                self._lost_from[k] = int(strongest_of(losses).blocks.new[0])


class Tracker:
    """Every benchmark's tests at the newest checkpoint, with the product's defaults and share of alpha for scores."""

    def __init__(self, name: str, engine: Engine, design: str = "weighted") -> None:
        self.name = name
        self._engine, self._design = engine, design

    def reset(self, meta: Meta) -> None:
        """Begin a new run."""
        self._engine.reset(meta)

    def step(self, view: Seen) -> Bools:
        """Return (K,): benchmarks with an alarm at the newest checkpoint."""
        return np.array([_any_loss(tests, Policy.min_effect) for tests in self._engine.tests(view, self._design)])


class TrackerWithSubsets:
    """The same for benchmarks with subsets: half of alpha for the whole, half for its clusters as subsets."""

    name = f"{DEFAULT}+subsets"

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def reset(self, meta: Meta) -> None:
        """Begin a new run."""
        self._engine.reset(meta)
        self._groupings = [grouping_of([str(group) for group in groups]) for groups in meta["groups"]]

    def step(self, view: Seen) -> Bools:
        """Return (K,): benchmarks with an alarm at the newest checkpoint, by themselves or by one of their subsets."""
        whole = [_halved(tests) for tests in self._engine.tests(view, "weighted")]
        parts = zip(whole, self._engine.matrices(view), self._groupings, strict=True)
        return np.array([_any_loss(tests, Policy.min_effect) or self._in_a_subset(m, g) for tests, m, g in parts])

    def _in_a_subset(self, matrix: ScoreMatrix, grouping: Grouping) -> bool:
        level = replace(self._engine.level, alpha=self._engine.level.alpha / 2, design=ONE_SIZE)
        found = subset_evidence(matrix, _track(matrix), grouping, level)
        return any(_any_loss(tests, Policy.subset_min_effect) for tests in found.values())


def make() -> list[Detector]:
    """Return the engine, with the tests of subsets, and with equal shares and the variance of now."""
    engine = Engine()
    return [Tracker(DEFAULT, engine), TrackerWithSubsets(engine), Tracker(f"{DEFAULT}-plain", engine, "plain")]


# --- private


def _track(matrix: ScoreMatrix) -> Track:
    return Track(scores=matrix, rows=np.arange(matrix.sums.size))


def _halved(tests: Iterable[Evidence]) -> list[Evidence]:
    return [replace(test, alpha_test=test.alpha_test / 2) for test in tests]


def _any_loss(tests: Iterable[Evidence], min_effect: float) -> bool:
    return any(test.is_loss(min_effect) for test in tests)
