"""What flags are worth: false alarms per run with their interval, power and delay per plant and size.

A false alarm is a flag on a benchmark that has lost nothing yet. A flag from the onset on, within the plant's horizon,
finds the loss; delay 0 is the onset's own checkpoint. What is flagged after a loss has begun is never counted as false.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv

from benchmarks.verdicts.series import Ints
from benchmarks.verdicts.view import Bools


@dataclass(frozen=True, kw_only=True)
class RunScore:
    """What one detector did on one run."""

    false_flags: int
    healthy: int
    """Pairs of benchmark and checkpoint that could be flagged falsely."""
    delays: dict[int, int | None]
    """Per benchmark size: checkpoints from the onset to the first flag; None: not found within the horizon."""


@dataclass(frozen=True, kw_only=True)
class Rate:
    """`count` of `total`."""

    count: int
    total: int

    @property
    def share(self) -> float:
        """Return count / total; `total` is at least 1."""
        return self.count / self.total

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the exact interval of Clopper and Pearson 1934."""
        tail, k, n = (1 - level) / 2, self.count, self.total
        low = float(betaincinv(k, n - k + 1, tail)) if k else 0.0
        high = float(betaincinv(k + 1, n - k, 1 - tail)) if k < n else 1.0
        return low, high


@dataclass(frozen=True, kw_only=True)
class Detection:
    """How often, and how soon, one kind of loss is found."""

    power: Rate
    median_delay: float | None
    """In checkpoints, over the losses that were found; None: none was."""


def score_run(flags: Bools, onset: Ints, sizes: Ints, horizon: int) -> RunScore:
    """Score `flags` (T, K) of a run whose benchmarks of `sizes` (K,) lose something at `onset` (K,); T: never."""
    length = flags.shape[0]
    healthy = np.arange(length)[:, None] < onset
    delays: dict[int, int | None] = {}
    for k in np.flatnonzero(onset < length):
        found = np.flatnonzero(flags[onset[k] : onset[k] + horizon, k])
        delays[int(sizes[k])] = int(found[0]) if found.size else None
    return RunScore(false_flags=int((flags & healthy).sum()), healthy=int(healthy.sum()), delays=delays)


def false_alarms(scores: Sequence[RunScore]) -> Rate:
    """Return how many runs have at least one false flag."""
    return Rate(count=sum(score.false_flags > 0 for score in scores), total=len(scores))


def false_flags(scores: Sequence[RunScore]) -> Rate:
    """Return how many healthy pairs of benchmark and checkpoint are flagged."""
    return Rate(count=sum(score.false_flags for score in scores), total=sum(score.healthy for score in scores))


def detection(scores: Sequence[RunScore], size: int) -> Detection:
    """Return how the losses in benchmarks of `size` items were found."""
    delays = [score.delays[size] for score in scores]
    found = [delay for delay in delays if delay is not None]
    return Detection(
        power=Rate(count=len(found), total=len(delays)), median_delay=statistics.median(found) if found else None
    )
