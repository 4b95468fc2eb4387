"""The level of each test, so that a healthy run raises any alarm with a probability of at most alpha. Pure.

alpha_test = alpha / (T * K) * share of the size of the new block * share of the baseline, with T planned checkpoints
and K benchmarks.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tracker.domain.records.types import Baseline

POOLED = (1, 2, 4, 8)
"""Numbers of newest checkpoints to average. Each size costs a little of the level; pools find smaller losses."""


@dataclass(frozen=True, kw_only=True)
class Design:
    """How the tests of one checkpoint share its part of alpha, and which item variance they use."""

    by_pooled: Mapping[int, float]
    """Share of each size of the new block; the sum is at most 1."""
    by_baseline: Mapping[Baseline, float]
    """Weight of each baseline; normalized to a sum of 1 over those in use."""
    null_variance: bool
    """Whether to use the item variance of the same contrast before the new block."""


DEFAULT = Design(
    by_pooled={1: 0.1, 2: 0.2, 4: 0.3, 8: 0.4},
    by_baseline={Baseline.RECENT: 0.65, Baseline.PEAK: 0.35, Baseline.PINNED: 0.35},
    null_variance=True,
)
"""Larger pools find smaller losses, so they get more."""

PLAIN = Design(
    by_pooled=dict.fromkeys(POOLED, 0.25),
    by_baseline=dict.fromkeys((Baseline.RECENT, Baseline.PEAK, Baseline.PINNED), 1.0),
    null_variance=False,
)
"""Equal shares and the current variance: for answer lengths, for series without samples, and for comparison."""

ONE_SIZE = Design(by_pooled={4: 1.0}, by_baseline=PLAIN.by_baseline, null_variance=False)
"""One size of the new block: for subsets."""

SUITE = Design(
    by_pooled={1: 0.3, 2: 0.1, 4: 0.4, 8: 0.2},
    by_baseline={Baseline.RECENT: 1.0, Baseline.PEAK: 0.0, Baseline.PINNED: 0.0},
    null_variance=True,
)
"""For all benchmarks together. The newest checkpoint alone shows a broken one, the newest four a small loss."""

SUITE_SHARE = 0.25
"""Share of the alpha for scores that goes to all benchmarks together, where there are enough of them."""

SCORE_SHARE = 0.9
"""Share of the run's alpha for scores; if a benchmark has subsets, half of its part is for them."""
BEHAVIOUR_SHARE = 0.05
"""Share for the length of answers, and as much again for truncated answers."""

_FIRST_EPOCH = 100


def alpha_per_checkpoint(alpha: float, position: int, planned: int | None) -> float:
    """Return the share of `alpha` for the checkpoint at `position` (0 for the first).

    With a planned number T: alpha / T each. Unknown length: alpha/2 over the first 100, alpha/4 over the next 200,
    alpha/8 over the next 400, and so on, which adds up to at most alpha for any length. A run that is longer than
    planned continues as one of unknown length, with an alpha of its own.
    """
    if planned is not None:
        if position < planned:
            return alpha / planned
        position -= planned
    length, share = _FIRST_EPOCH, alpha / 2
    while position >= length:
        position -= length
        length, share = 2 * length, share / 2
    return share / length
