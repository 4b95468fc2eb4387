"""Tests of benchmarks with means and standard errors only, without samples. Pure.

Scores are in [0, 1] and higher is better, as everywhere in the engine: its constants are in points of such a score.
Pass an error rate as 1 - x. Perplexities and losses have no such scale: means outside [0, 1] raise `BadData`.
benchmarks/REPLAY.md shows the real series behind each of these rules.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from eval_jobs.errors import BadData
from tracker.domain.regression.budget import PLAIN
from tracker.domain.regression.detector import ErrorBudget, Evidence, Track, evidence_of
from tracker.domain.regression.jitter import WINDOW, estimate_jitter, independent_jitter, second_differences_of
from tracker.domain.scores.matrix import Contrast, FloatArray, IntArray

_NO_VARIANCE = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False)
class AggregateSeries:
    """T checkpoints of one benchmark. Raises `BadData` if the values cannot be tested on the scale of a score."""

    steps: IntArray
    """Shape (T,), ascending; 0 is the untrained model."""
    means: FloatArray
    """Shape (T,), in [0, 1]; higher is better."""
    stderrs: FloatArray
    """Shape (T,): standard error of each mean over its samples, as the evaluation reported it."""
    chance: float | None = None
    """Score of the best constant answer, which ignores the question: 1 / choices or, if one answer is correct more
    often than the others, its share. None: unknown."""

    def __post_init__(self) -> None:
        problem = _problem(self)
        if problem:
            raise BadData(problem, hint="exclude this benchmark, or import it with samples")

    @cached_property
    def n_samples(self) -> int:
        """Number of samples, from se^2 = y (1 - y) / (n - 1): exact for scores of 0 and 1, else an upper bound."""
        known = self.stderrs > 0
        y = self.means[known]
        return round(float(np.median(y * (1 - y) / self.stderrs[known] ** 2))) + 1

    def contrasts(self, weights: FloatArray) -> tuple[Contrast, ...]:
        """Return D = w'y and an item variance for every row of `weights`, shape (Q, T).

        Assumes that all checkpoints were evaluated on the same samples: `common_fraction` is 1.
        """
        used = np.flatnonzero(weights.any(axis=0))  # only a few checkpoints, however long the run
        own = weights[:, used]
        deltas, variances = own @ self.means[used], self._item_variances(own, self.stderrs[used])
        return tuple(
            Contrast(delta=float(delta), item_variance=float(v), n=self.n_samples, common_fraction=1.0)
            for delta, v in zip(deltas, variances, strict=True)
        )

    def _item_variances(self, weights: FloatArray, stderrs: FloatArray) -> FloatArray:
        """Return an item variance for every row of `weights`, shape (Q,); `stderrs` are the errors of its columns.

        The samples are the same at every checkpoint, but the correlation of their scores is unknown. With r between any
        two checkpoints, v = (1 - r) sum w_s^2 se_s^2 + r (sum w_s se_s)^2. The larger end is used: r = 0 for a
        difference (no gain from pairing), r = 1 for a level (no gain from more checkpoints). It is a bound for every r
        in [0, 1], but not if r decreases with distance.
        """
        # A score of 0 or 1 is reported with an error of 0. It can be off by at least one sample.
        errors = np.maximum(stderrs, 1 / self.n_samples)
        unpaired = weights**2 @ errors**2
        identical = (weights @ errors) ** 2
        variances: FloatArray = np.maximum(np.maximum(unpaired, identical), _NO_VARIANCE)
        return variances


def aggregate_evidence(
    series: Sequence[AggregateSeries], step: int, level: ErrorBudget
) -> tuple[tuple[Evidence, ...], ...]:
    """Return the tests of each benchmark at `step`; () if it has no such step or too few before it.

    Always uses the design `PLAIN`: without samples, the earlier item variance of a contrast is unknown. The jitter is
    estimated as in the engine, but the second differences cancel a trend that is linear in log step, so a steep start
    with unevenly spaced checkpoints does not count as noise. Such spacing shows no persistence, so none is assumed.
    """
    rows = {i: np.flatnonzero(s.steps <= step) for i, s in enumerate(series) if step in s.steps}
    bends = [
        [second_differences_of(series[i].contrasts(bend_weights(series[i].steps, own, WINDOW)))]
        for i, own in rows.items()
    ]
    plain = replace(level, design=PLAIN)
    found: dict[int, tuple[Evidence, ...]] = {}
    for (i, own), jitter in zip(rows.items(), estimate_jitter(bends), strict=True):
        found[i] = evidence_of(Track(scores=series[i], rows=own), independent_jitter(jitter), plain)
    return tuple(found.get(i, ()) for i in range(len(series)))


def bend_weights(steps: IntArray, rows: IntArray, limit: int) -> FloatArray:
    """Return weights of second differences over log(1 + step) of the newest `limit` triples, shape (h, T).

    Each row is proportional to (a, -1, 1 - a), where `a` interpolates the middle checkpoint, with sum w^2 = 6 like
    (1, -2, 1), which it equals for even spacing.
    """
    when = np.log1p(steps.astype(np.float64))
    first = max(0, rows.size - 2 - limit)
    left, middle, right = (rows[first + k : max(first, rows.size - 2) + k] for k in range(3))
    a = (when[right] - when[middle]) / (when[right] - when[left])
    scale = np.sqrt(6 / (a**2 + 1 + (1 - a) ** 2))
    weights, at = np.zeros((left.size, steps.size)), np.arange(left.size)
    weights[at, left], weights[at, middle], weights[at, right] = a * scale, -scale, (1 - a) * scale
    return weights


def _problem(series: AggregateSeries) -> str:
    if not series.steps.shape == series.means.shape == series.stderrs.shape or series.steps.ndim != 1:
        return "steps, means and standard errors differ in length"
    if np.any(np.diff(series.steps) <= 0):
        return "steps are not ascending"
    if not np.all((series.means >= 0) & (series.means <= 1)):
        return "a mean is outside [0, 1]"
    if not np.all(np.isfinite(series.stderrs) & (series.stderrs >= 0)) or not np.any(series.stderrs > 0):
        return "standard errors are missing or 0"
    return ""
