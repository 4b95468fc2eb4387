"""The word for a benchmark of which only means and standard errors are known. Pure.

    found = [aggregate_evidence(series, step, level)[k] for step in the_newest_three]
    word = aggregate_word(found, thresholds, learned=had_something_to_lose(series[k], found[-1]))
    at_most_suspect(word)                       # `scores.suspicion`: what may be said: `suspect` at most

docs/replay.md tells why the rules differ from those with samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tracker.domain.records.types import Baseline, VerdictWord
from tracker.domain.regression.aggregates import AggregateSeries
from tracker.domain.regression.blocks import Blocks
from tracker.domain.regression.detector import Evidence
from tracker.domain.regression.pooled_test import PooledTest, pooled_test
from tracker.domain.verdicts.decision import LEARNED_EFFECT, LEARNED_P
from tracker.domain.verdicts.episodes import FORGOTTEN_AFTER
from tracker.domain.verdicts.hypothesis import Thresholds, losses, word_of

_FORGOTTEN_POOLED = 4


def had_something_to_lose(series: AggregateSeries, found: Sequence[Evidence]) -> bool:
    """Return whether there was something to lose: the baseline block stands above what guessing gives.

    Guessing is `chance` where it is known, and the first block where the run begins untrained (at step 0) or chance is
    not known; above both, where there are both. By 2 points and p < .01, the choice of the block paid for. The block is
    the peak and, before there is one, the recent checkpoints.
    """
    best = max(found, key=lambda e: e.blocks.baseline is Baseline.PEAK, default=None)
    if best is None:
        return False
    rises = []
    if series.chance is not None:
        rises.append(_rise_over_chance(series, series.chance, best))
    if series.chance is None or series.steps[0] == 0:
        rises.append(_rise_over_first(series, best))
    selected_from = best.blocks.selected_from
    return all(rise.delta >= LEARNED_EFFECT and rise.p_better(selected_from) < LEARNED_P for rise in rises)


def aggregate_word(newest: Sequence[Sequence[Evidence]], thresholds: Thresholds, *, learned: bool) -> VerdictWord:
    """Return the word by the evidence of the newest checkpoints, oldest first; the last one is not empty."""
    word = word_of(newest[-1], thresholds)
    if word is VerdictWord.REGRESSED and learned and _is_below_peak(newest, thresholds):
        return VerdictWord.FORGOTTEN
    return word


# --- private


def _is_below_peak(newest: Sequence[Sequence[Evidence]], thresholds: Thresholds) -> bool:
    below = [
        [e for e in losses(found, thresholds) if e.blocks.baseline is Baseline.PEAK]
        for found in newest[-FORGOTTEN_AFTER:]
    ]
    return len(below) == FORGOTTEN_AFTER and all(below) and any(e.m == _FORGOTTEN_POOLED for e in below[-1])


def _rise_over_first(series: AggregateSeries, best: Evidence) -> PooledTest:
    width = best.blocks.base.size
    first = Blocks(baseline=Baseline.GIVEN, new=best.blocks.base, base=np.arange(width))
    (contrast,) = series.contrasts(first.weights(series.steps.size)[np.newaxis])
    return pooled_test(contrast, best.jitter, width, width)


def _rise_over_chance(series: AggregateSeries, chance: float, best: Evidence) -> PooledTest:
    width = best.blocks.base.size
    weights = np.zeros((1, series.steps.size))
    weights[0, best.blocks.base] = 1 / width
    (level,) = series.contrasts(weights)
    return pooled_test(replace(level, delta=level.delta - chance), best.jitter, width, math.inf)
