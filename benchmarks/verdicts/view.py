"""What a detector sees: one run up to the current checkpoint, never beyond it.

view = View(series)
detector.reset(view.meta())
for t in range(CHECKPOINTS):
    flags = detector.step(view.at(t))    # (K,): which benchmarks have lost something
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NotRequired, Protocol, Self, TypedDict

import numpy as np
from numpy.typing import NDArray

from benchmarks.verdicts.series import CHECKPOINTS, Floats, Ints, Scores, Series
from tracker.domain.scores.statistics.paired import mcnemar_midp

Bools = NDArray[np.bool_]

ALPHA = 0.05
BASELINES = ("previous", "best")


class Meta(TypedDict):
    """What a detector is told before a run."""

    K: int
    T_plan: int
    n: Ints
    groups: list[Ints]
    alpha: float
    restarts: NotRequired[tuple[int, ...]]
    """First checkpoint after each restart of the learning rate, if the training log shows any."""


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """A weighted sum over checkpoints of paired scores, for each of K benchmarks."""

    difference: Floats
    """(K,), mean over the items."""
    variance: Floats
    """(K,), of `difference`, with items as the independent units."""


class View:
    """Scores and their statistics up to checkpoint `t`. Sums of products of checkpoints are computed once for all."""

    def __init__(self, series: Series) -> None:
        self.t = 0
        self.K = len(series.benchmarks)
        self.T_plan = CHECKPOINTS
        self.n: Ints = np.array([b.scores.shape[1] for b in series.benchmarks])
        self._series = series
        self._means = np.stack([b.scores.mean(axis=1, dtype=np.float64) for b in series.benchmarks])
        self._gram = np.stack([_gram(b.scores) for b in series.benchmarks])
        self._p_worse: dict[str, Floats] = {}

    def at(self, t: int) -> Self:
        """Move to checkpoint `t`."""
        self.t = t
        self._p_worse.clear()
        return self

    def meta(self) -> Meta:
        """Return what a detector is told before the run."""
        return Meta(
            K=self.K, T_plan=self.T_plan, n=self.n, groups=[b.groups for b in self._series.benchmarks], alpha=ALPHA
        )

    def scores(self, k: int, s: int) -> Scores:
        """Return (n,) scores of benchmark `k` at checkpoint `s`, at most the current one."""
        if s > self.t:
            raise IndexError(f"checkpoint {s} lies in the future of {self.t}")
        scores: Scores = self._series.benchmarks[k].scores[s]
        return scores

    def groups(self, k: int) -> Ints:
        """Return (n,) clusters of benchmark `k`'s items."""
        return self._series.benchmarks[k].groups

    def means(self) -> Floats:
        """Return (K, t + 1) mean scores."""
        return self._means[:, : self.t + 1]

    def reference(self, baseline: str) -> Ints:
        """Return (K,) checkpoints to compare with: the `previous` one, or the `best` earlier one. Needs t >= 1."""
        if baseline == "previous":
            return np.full(self.K, self.t - 1)
        best: Ints = self.means()[:, : self.t].argmax(axis=1)
        return best

    def p_worse(self, baseline: str) -> Floats:
        """Return (K,) one-sided mid-p McNemar values of "worse than `baseline`"."""
        if baseline not in self._p_worse:
            self._p_worse[baseline] = self._mcnemar(self.reference(baseline))
        return self._p_worse[baseline]

    def contrast(self, weights: Floats) -> Contrast:
        """Return the contrast with `weights` (K, t + 1), whose rows add up to 0.

        With y the means and G the mean products of two checkpoints' scores: difference D = w'y, and from the mean
        square w'Gw of the items' own contrasts, variance (w'Gw - D^2) / (n - 1).
        """
        now = self.t + 1
        difference = (weights * self.means()).sum(axis=1)
        square = np.einsum("ks,kst,kt->k", weights, self._gram[:, :now, :now], weights)
        return Contrast(difference=difference, variance=np.maximum(square - difference**2, 0.0) / (self.n - 1))

    def _mcnemar(self, reference: Ints) -> Floats:
        k = np.arange(self.K)
        both = self._gram[k, self.t, reference]
        lost = np.rint((self._means[k, reference] - both) * self.n).astype(int)
        gained = np.rint((self._means[:, self.t] - both) * self.n).astype(int)
        return np.array([mcnemar_midp(a, b) for a, b in zip(lost.tolist(), gained.tolist(), strict=True)])


class Seen(Protocol):
    """A run up to checkpoint `t`, as our own detectors read it."""

    t: int

    def scores(self, k: int, s: int) -> Scores | Floats:
        """Return (n,) scores of benchmark `k` at checkpoint `s`; NaN: no score."""


class Detector(Protocol):
    """Judges every checkpoint of a run when it comes."""

    name: str

    def reset(self, meta: Meta) -> None:
        """Forget everything: a new run begins."""

    def step(self, view: View) -> Bools:
        """Return (K,): True where the benchmark has lost something at checkpoint `view.t`. Called once for each."""


# --- private


def _gram(scores: Scores) -> Floats:
    """Mean over the items of the products of two checkpoints' scores, (T, T)."""
    x = scores.astype(np.float32)  # sums of up to 2^24 ones are exact
    gram: Floats = np.divide(x @ x.T, x.shape[1], dtype=np.float64)
    return gram
