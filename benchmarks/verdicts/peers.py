"""What others do to find a regression, as detectors.

Each peer is a function from what is known of a run to the step that judges one checkpoint. Where a rule does not name
its baseline, it is used against the previous and against the best checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.special import logsumexp, ndtri

from benchmarks.verdicts.series import Floats
from benchmarks.verdicts.view import ALPHA, BASELINES, Bools, Contrast, Meta, View
from tracker.domain.regression.jitter import SecondDifferences, estimate_jitter
from tracker.domain.regression.pooled_test import independent, pooled_test
from tracker.domain.scores.matrix import Contrast as ItemContrast

Step = Callable[[View], Bools]
"""Judges a checkpoint that has an earlier one: (K,) flags."""


class Peer:
    """A detector made of one function."""

    def __init__(self, name: str, begin: Callable[[Meta], Step]) -> None:
        self.name = name
        self._begin = begin

    def reset(self, meta: Meta) -> None:
        """Begin a new run."""
        self._step = self._begin(meta)

    def step(self, view: View) -> Bools:
        """Return (K,) flags; none at the first checkpoint, which has nothing to be compared with."""
        return self._step(view) if view.t else np.zeros(view.K, dtype=bool)


def peers() -> list[Peer]:
    """Return one of each, fresh."""
    return [
        Peer("2pt_best", partial(fixed_threshold, points=2, baseline="best")),
        Peer("5pt_best", partial(fixed_threshold, points=5, baseline="best")),
        Peer("5pt_previous", partial(fixed_threshold, points=5, baseline="previous")),
        Peer("unpaired_best", partial(unpaired, baseline="best")),
        Peer("unpaired_previous", partial(unpaired, baseline="previous")),
        Peer("mcnemar", mcnemar),
        Peer("bonferroni", bonferroni),
        Peer("bh", benjamini_hochberg),
        Peer("lond", lond),
        Peer("e-detector", e_detector),
    ]


def fixed_threshold(_: Meta, points: int, baseline: str) -> Step:
    """More than so many points lower: promptfoo's pass rate threshold, vLLM's GSM8K gate, most scripts."""
    drop = points / 100 + 1e-12  # a loss of exactly the threshold passes, whatever its rounding

    def step(view: View) -> Bools:
        before, now = _two_means(view, baseline)
        flags: Bools = now < before - drop
        return flags

    return step


def unpaired(_: Meta, baseline: str) -> Step:
    """Two standard errors, as if other items had been asked: lm-evaluation-harness, scripts/model_comparator.py."""

    def step(view: View) -> Bools:
        before, now = _two_means(view, baseline)
        variance: Floats = (before * (1 - before) + now * (1 - now)) / (view.n - 1)
        flags: Bools = now < before - 2 * np.sqrt(variance)
        return flags

    return step


def mcnemar(_: Meta) -> Step:
    """McNemar's test of each comparison at two-sided .05."""
    return lambda view: np.any(_p_worse(view) < ALPHA / 2, axis=1)


def bonferroni(meta: Meta) -> Step:
    """McNemar's test at .05 divided by all comparisons of the planned run."""
    level = ALPHA / _comparisons(meta)
    return lambda view: np.any(_p_worse(view) < level, axis=1)


def benjamini_hochberg(_: Meta) -> Step:
    """McNemar's test, false discovery rate .05 at each checkpoint (Benjamini and Hochberg 1995)."""

    def step(view: View) -> Bools:
        p = _p_worse(view)
        ordered = np.sort(p, axis=None)
        passing: Floats = ordered[ordered <= ALPHA * np.arange(1, p.size + 1) / p.size]
        flags: Bools = np.any(p <= passing.max(initial=-1.0), axis=1)
        return flags

    return step


def lond(meta: Meta) -> Step:
    """McNemar's test at levels that rise with each discovery so far (Javanmard and Montanari 2015).

    The j-th of all comparisons is tested at .05 * g_j * (discoveries + 1), g_j proportional to j^-1.6.
    """
    spending = np.arange(1.0, _comparisons(meta) + 1) ** -1.6
    levels = iter((ALPHA * spending / spending.sum()).tolist())
    discoveries = 0

    def step(view: View) -> Bools:
        nonlocal discoveries
        flags = np.zeros(view.K, dtype=bool)
        for k, values in enumerate(_p_worse(view).tolist()):
            for p in values:
                found = p <= next(levels) * (discoveries + 1)
                discoveries += found
                flags[k] |= found
        return flags

    return step


def e_detector(meta: Meta) -> Step:
    """CUSUM e-detector (Shin, Ramdas and Rinaldo 2022) on the newest checkpoint against the 10 before it.

    With z the normal score of the pooled test's p, jitter included: log M = max(log M, 0) + b z - b^2 / 2 for bets b of
    1, 2 and 3; an alarm where the mean of the M reaches K * T / .05.
    """
    bets = np.array([1.0, 2.0, 3.0])
    limit = np.log(meta["K"] * meta["T_plan"] / ALPHA)
    log_m = np.zeros((meta["K"], bets.size))
    wiggles: list[Contrast] = []

    def step(view: View) -> Bools:
        nonlocal log_m
        if view.t >= 2:
            wiggles.append(view.contrast(_weights(view, [1.0, -2.0, 1.0])))
        if view.t < 5:
            return np.zeros(view.K, dtype=bool)
        width = min(10, view.t)
        contrast = view.contrast(_weights(view, [-1 / width] * width + [1.0]))
        z = -ndtri(np.clip(_pooled_p(view, contrast, wiggles, width), 1e-12, 1 - 1e-12))
        log_m = np.maximum(log_m, 0.0) + bets * z[:, None] - bets**2 / 2
        flags: Bools = logsumexp(log_m, axis=1) - np.log(bets.size) >= limit
        return flags

    return step


# --- private


def _weights(view: View, newest: list[float]) -> Floats:
    """Weights (K, t + 1) that are 0 but for the newest checkpoints."""
    weights = np.zeros((view.K, view.t + 1))
    weights[:, -len(newest) :] = newest
    return weights


def _pooled_p(view: View, contrast: Contrast, wiggles: list[Contrast], width: int) -> Floats:
    """One-sided p of "worse" with our engine's jitter, (K,)."""
    deltas = np.array([w.difference for w in wiggles])
    variances = np.array([w.variance for w in wiggles])
    jitters = estimate_jitter(
        [[SecondDifferences(deltas=deltas[:, k], item_variances=variances[:, k])] for k in range(view.K)]
    )
    pairs = zip(contrast.difference.tolist(), contrast.variance.tolist(), view.n.tolist(), jitters, strict=True)
    tests = [
        pooled_test(ItemContrast(delta=d, item_variance=v, n=n, common_fraction=1.0), jitter, independent(1, width))
        for d, v, n, jitter in pairs
    ]
    return np.array([test.p_worse() for test in tests])


def _comparisons(meta: Meta) -> int:
    return meta["K"] * meta["T_plan"] * len(BASELINES)


def _p_worse(view: View) -> Floats:
    """McNemar's p of each benchmark against each baseline, (K, B)."""
    return np.stack([view.p_worse(baseline) for baseline in BASELINES], axis=1)


def _two_means(view: View, baseline: str) -> tuple[Floats, Floats]:
    means = view.means()
    before: Floats = means[np.arange(view.K), view.reference(baseline)]
    return before, means[:, -1]
