"""The shipped engine as a detector, fed checkpoint by checkpoint on the way that the product takes.

`make` also fits other simulators: whoever calls `reset(meta)` and `step(view)`, where `meta` has K, T_plan, n, groups
and alpha and `view` has t and scores(k, t), can score the engine itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from benchmarks.verdicts.view import Bools, Detector, Meta, Seen
from tracker.domain.records.policy import Policy
from tracker.domain.regression.budget import DEFAULT as WEIGHTED
from tracker.domain.regression.budget import ONE_SIZE, PLAIN, SCORE_SHARE, SUITE, SUITE_SHARE, Design
from tracker.domain.regression.detector import ErrorBudget, Evidence, Track, evidence_of, jitter_of
from tracker.domain.regression.dips import earlier_in_dips, is_dip_expected, windows_of
from tracker.domain.regression.subsets import subset_evidence
from tracker.domain.regression.suite import SuiteTest, is_back, shared_variance, suite_tests
from tracker.domain.scores.grouping import Grouping, grouping_of
from tracker.domain.scores.matrix import ScoreMatrix, empty_matrix, inserted
from tracker.domain.verdicts.hypothesis import strongest_of
from tracker.domain.verdicts.losses.stages import RECOVERED_AFTER

DEFAULT = "tracker"
"""Name of the engine for benchmarks without subsets."""

DESIGNS = {"weighted": WEIGHTED, "plain": PLAIN}


class Engine:
    """The engine along one run; detectors that share one let it do each checkpoint's work once."""

    def reset(self, meta: Meta) -> None:
        """Begin a new run."""
        alpha = meta["alpha"] * SCORE_SHARE
        self.level = ErrorBudget(alpha=alpha * (1 - SUITE_SHARE), planned=meta["T_plan"], benchmarks=meta["K"])
        self._suite_level = ErrorBudget(alpha=alpha * SUITE_SHARE, planned=meta["T_plan"], benchmarks=1, design=SUITE)
        self._restarts = meta.get("restarts", ())
        self._matrices = [empty_matrix(int(n)) for n in meta["n"]]
        self._tests: dict[str, tuple[tuple[Evidence, ...], ...]] = {}
        self._lost_from: dict[int, int] = {}
        self._broken: set[int] = set()
        self._suite_from: int | None = None
        self._is_lasting = False

    def matrices(self, view: Seen) -> list[ScoreMatrix]:
        """Return the scores of each benchmark up to the newest checkpoint."""
        if self._matrices[0].sums.size == view.t:
            self._tests.clear()
            for k, matrix in enumerate(self._matrices):
                self._matrices[k] = inserted(matrix, view.t, view.scores(k, view.t).astype(np.float64))
            self._prepare(view.t)
        return self._matrices

    def tests(self, view: Seen, design: str) -> tuple[tuple[Evidence, ...], ...]:
        """Return the tests of each benchmark at the newest checkpoint; `design` is a key of `DESIGNS`."""
        self.matrices(view)
        if design not in self._tests:
            self._tests[design] = self._evidence(self._rows, DESIGNS[design])
            if not self.is_expected:
                self._open_losses(self._tests[design])
        return self._tests[design]

    def suite(self, view: Seen) -> tuple[SuiteTest, ...]:
        """Return the tests of all benchmarks together that show a loss at the newest checkpoint."""
        tests = self.tests(view, "weighted")
        open_ones = {k for k, onset in self._lost_from.items() if onset < view.t - max(SUITE.by_pooled) + 1}
        losses = [test for test in self._suite_tests(tests, open_ones, view.t) if test.is_loss]
        if losses and not self.is_expected:
            if self._suite_from is None:
                self._suite_from = view.t + 1 - max(test.m for test in losses)
            self._is_lasting |= any(test.m > 1 for test in losses)
        return tuple(losses)

    @property
    def is_lasting(self) -> bool:
        """Whether an open loss of the suite is one of more than a single checkpoint."""
        return self._is_lasting

    def _prepare(self, t: int) -> None:
        """Choose the checkpoints that count: not those of dips and of losses of the suite that are over."""
        self._means = np.array([matrix.means for matrix in self._matrices])
        windows = windows_of(self._means, [start for start in self._restarts if start <= t])
        self.is_expected = is_dip_expected(windows, t)
        out = self._broken | earlier_in_dips(windows, t)
        self._rows = [row for row in range(t + 1) if row not in out or row == t]
        self._quiet_to = windows[-1].start if self.is_expected else t + 1
        if self._suite_from is None or not self._is_back(t):
            return
        self._broken |= set(range(self._suite_from, t))
        self._rows = [row for row in self._rows if row not in self._broken]
        self._suite_from, self._is_lasting = None, False

    def _is_back(self, t: int) -> bool:
        before = [row for row in self._rows if row < (self._suite_from or 0)]
        after = RECOVERED_AFTER if self._is_lasting else 1
        newest = [row for row in self._rows if row >= (self._suite_from or 0)][-after:]
        if not before or len(newest) < after or newest[0] == self._suite_from:
            return False
        tests = self._suite_tests(self._evidence([*before, *newest], WEIGHTED), set(), t)
        return is_back([test for test in tests if test.m <= after])

    def _evidence(self, rows: Sequence[int], design: Design) -> tuple[tuple[Evidence, ...], ...]:
        places = np.array(rows)
        tracks = []
        for k, matrix in enumerate(self._matrices):
            ends = [self._lost_from.get(k), self._suite_from, self._quiet_to]
            first = min(end for end in ends if end is not None)
            end = None if first > rows[-1] else int((places < first).sum())
            tracks.append(Track(scores=matrix, rows=places, noise_to=end, dropped=rows[-1] + 1 - len(rows)))
        level = replace(self.level, design=design)
        return tuple(evidence_of(t, j, level) for t, j in zip(tracks, jitter_of(tracks), strict=True))

    def _suite_tests(self, tests: Sequence[Sequence[Evidence]], without: set[int], t: int) -> tuple[SuiteTest, ...]:
        named = {str(k): found for k, found in enumerate(tests) if k not in without}
        end = t if self._suite_from is None else self._suite_from
        return suite_tests(named, shared_variance(self._means[:, :end]), self._suite_level, t)

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
        alarms = np.array([_any_loss(tests, Policy.min_effect) for tests in self._engine.tests(view, self._design)])
        if self._design == "weighted":
            for test in self._engine.suite(view):
                if self._engine.is_lasting:
                    alarms[[int(name) for name in test.fallen]] = True
        if self._engine.is_expected:
            alarms[:] = False
        return alarms


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
