"""The level that one test is held to, so that a whole healthy run raises an alarm with probability alpha at most. Pure.

alpha_test = alpha / (T * K) * share of the size of the new block * share of the baseline, with T planned checkpoints
and K benchmarks.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tracker.domain.records.types import Baseline

POOLED = (1, 2, 4, 8)
"""Newest checkpoints that are averaged: pooling costs a little threshold and finds losses that one cannot show."""


@dataclass(frozen=True, kw_only=True)
class Design:
    """How the tests of one checkpoint share its part of alpha, and which item variance they use."""

    by_pooled: Mapping[int, float]
    """Share of each size of the new block; at most 1 in sum."""
    by_baseline: Mapping[Baseline, float]
    """Weight of each baseline that there is; they are brought to a sum of 1."""
    null_variance: bool
    """Whether the item variance is that of the same contrast before the new block."""


DEFAULT = Design(
    by_pooled={1: 0.1, 2: 0.2, 4: 0.3, 8: 0.4},
    by_baseline={Baseline.RECENT: 0.65, Baseline.PEAK: 0.35, Baseline.PINNED: 0.35},
    null_variance=True,
)
"""Long pools find small losses, so they get more."""

PLAIN = Design(
    by_pooled=dict.fromkeys(POOLED, 0.25),
    by_baseline=dict.fromkeys((Baseline.RECENT, Baseline.PEAK, Baseline.PINNED), 1.0),
    null_variance=False,
)
"""Equal shares and the variance of now: for the length of answers, for series without samples, and to compare with."""

ONE_SIZE = Design(by_pooled={4: 1.0}, by_baseline=PLAIN.by_baseline, null_variance=False)
"""One size of the new block: for subsets."""

SCORE_SHARE = 0.9
"""Of the run's alpha, for scores; where a benchmark has subsets, half of it is for them."""
BEHAVIOUR_SHARE = 0.05
"""For the length of answers, and as much for answers that are cut off."""

_FIRST_EPOCH = 100


def alpha_per_checkpoint(alpha: float, position: int, planned: int | None) -> float:
    """Return the share of `alpha` for the checkpoint at `position` (0 for the first).

    With a planned number T: alpha / T each. Unknown length: alpha/2 over the first 100, alpha/4 over the next 200,
    alpha/8 over the next 400, and so on, which adds up to alpha however long the run becomes. A run that outgrows its
    plan goes on as one of unknown length, with an alpha of its own.
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
