"""The level that one test is held to, so that a whole healthy run raises an alarm with probability alpha at most. Pure.

alpha_test = alpha / (T * K * B * M): planned checkpoints, benchmarks, baselines, sizes of the new block.
"""

from __future__ import annotations

POOLED = (1, 2, 4, 8)
"""Newest checkpoints that are averaged: pooling costs log10(4) of threshold and finds losses that one cannot show."""

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
