"""The test of a checkpoint as a whole: all benchmarks together, for a loss that is small in each of them. Pure.

The falls of K benchmarks against the recent checkpoints, each in its standard deviations without a loss, are added
(Stouffer's method). The variance of the sum is K r: what moves all benchmarks of a run at once makes r larger than 1.
It is estimated from second differences,

    r = (W + sum_t S_t^2 / q_t) / (W + h),   S_t = sum_k u_kt / sqrt(K),   q_t = max(1, mean_k u_kt^2)

with u_kt the second difference of benchmark k at t in units of its typical one; h of them (Stouffer's method with
estimated dependence: Strube 1985, Psychological Bulletin 97, 334-341). q keeps apart what is loud in one benchmark.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracker.domain.records.types import Baseline
from tracker.domain.regression.budget import SUITE
from tracker.domain.regression.detector import ErrorBudget, Evidence
from tracker.domain.regression.jitter import MEDIAN_CHI2, WINDOW
from tracker.domain.scores.matrix import FloatArray
from tracker.domain.scores.statistics.paired import t_cdf

AT_LEAST = 3
"""Benchmarks that must have fallen: losses of fewer are their own."""

FALLEN_P = 0.05
"""Level at which one benchmark of a suite that lost something counts as fallen."""

_OTHER_BENCHMARKS_P, _OTHER_CHECKPOINTS_P = 0.05, 0.001
"""Levels at which a loss must show without the two benchmarks, and without the checkpoint, that fell most."""

RECOVERED_P = 0.05

_FARTHEST = 6.0
"""Largest fall of one benchmark that counts, in standard deviations."""

_INDEPENDENT = 10.0
"""W: weight of independent benchmarks, in second differences."""

_BENDS = 3
"""Checkpoints in a second difference."""


@dataclass(frozen=True, kw_only=True)
class SuiteTest:
    """The newest m checkpoints against the ones just before, over several benchmarks."""

    m: int
    p_worse: float
    """One-sided p of "worse"."""
    alpha_test: float
    parts: Mapping[str, Evidence]
    """The test of each benchmark, by name."""
    is_shared: bool
    """Whether the others show the loss, too: without the two benchmarks, or the checkpoint, that fell most."""

    @property
    def fallen(self) -> tuple[str, ...]:
        """Benchmarks that are lower by themselves, the largest fall first."""
        fell = [name for name, e in self.parts.items() if e.p_worse < FALLEN_P]
        return tuple(sorted(fell, key=lambda name: self.parts[name].test.delta))

    @property
    def is_loss(self) -> bool:
        """Whether several benchmarks have lost something, by the run's level."""
        return self.p_worse < self.alpha_test and self.is_shared and len(self.fallen) >= AT_LEAST


def suite_tests(
    evidence: Mapping[str, Sequence[Evidence]], shared: float, level: ErrorBudget, position: int
) -> tuple[SuiteTest, ...]:
    """Return one test for each size of the new block that at least `AT_LEAST` benchmarks have, the smallest first.

    `shared` is r, from `shared_variance`; `level` has the alpha of all tests of the suite, `position` counts from 0.
    """
    tests = []
    for m in SUITE.by_pooled:
        parts: dict[str, Evidence] = {}
        for name, found in evidence.items():
            for e in found:
                if e.m == m and e.blocks.baseline is Baseline.RECENT:
                    parts[name] = e
        if len(parts) >= AT_LEAST:
            tests.append(_test(m, parts, shared, level.alpha_test(position, m, Baseline.RECENT)))
    return tuple(tests)


def is_back(tests: Sequence[SuiteTest]) -> bool:
    """Return whether none of `tests`, at least one, against the checkpoints before a loss shows it any more."""
    return bool(tests) and all(test.p_worse > RECOVERED_P for test in tests)


def shared_variance(means: FloatArray) -> float:
    """Return r for the `means` of K benchmarks at the same T checkpoints, oldest first, shape (K, T)."""
    if means.shape[0] < AT_LEAST or means.shape[1] < _BENDS:
        return 1.0
    bends = np.diff(means[:, -WINDOW - 2 :], n=2)
    typical = np.sqrt(np.median(bends**2, axis=1) / MEDIAN_CHI2)
    units = bends[typical > 0] / typical[typical > 0, np.newaxis]
    if units.shape[0] < AT_LEAST:
        return 1.0
    together = units.sum(axis=0) ** 2 / units.shape[0]
    loud = np.maximum((units**2).mean(axis=0), 1.0)
    shared: float = (_INDEPENDENT + float((together / loud).sum())) / (_INDEPENDENT + together.size)
    return max(1.0, shared)


def _test(m: int, parts: Mapping[str, Evidence], shared: float, alpha_test: float) -> SuiteTest:
    tests = tuple(parts.values())
    falls = np.array([_in_deviations(e.test.delta, e) for e in tests])
    spread = math.sqrt(len(tests) * shared)
    df = sum(e.test.df for e in tests) / 2  # the doubt about the jitter is partly common to them
    others = np.sort(falls)[AT_LEAST - 1 :]
    is_shared = t_cdf(float(others.sum()) / math.sqrt(others.size * shared), df) < _OTHER_BENCHMARKS_P
    if m > 1:
        is_shared &= t_cdf(_without_lowest(m, tests) / spread, df) < _OTHER_CHECKPOINTS_P
    return SuiteTest(
        m=m,
        p_worse=t_cdf(float(falls.sum()) / spread, df),
        alpha_test=alpha_test,
        parts=parts,
        is_shared=is_shared,
    )


def _without_lowest(m: int, tests: Sequence[Evidence]) -> float:
    """Return the sum of the falls without the checkpoint of the new block that is lowest over all benchmarks."""
    deviations = np.array([math.sqrt(e.test.variance) for e in tests])
    means = np.array([e.new_means for e in tests])  # K x m
    lowest = int((means / deviations[:, np.newaxis]).sum(axis=0).argmin())
    total = 0.0
    for e, row in zip(tests, means, strict=True):
        width = e.blocks.base.size
        delta = e.test.delta + float(row.mean() - row[lowest]) / (m - 1)
        more = math.sqrt((1 / (m - 1) + 1 / width) / (1 / m + 1 / width))
        total += _in_deviations(delta / more, e)
    return total


def _in_deviations(delta: float, evidence: Evidence) -> float:
    return max(-_FARTHEST, min(_FARTHEST, delta / math.sqrt(evidence.test.variance)))
