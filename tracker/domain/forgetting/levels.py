"""How much of its best score a benchmark has lost, with the error of that number. Pure.

Both sides are means over blocks of checkpoints, because the best single checkpoint is also the luckiest one. Verdicts
use the same test (`regression.pooled_test`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from tracker.domain.records.losses import Drop
from tracker.domain.regression.blocks import BLOCK, Blocks, peak_blocks, peak_width, second_difference_weights
from tracker.domain.regression.detector import Track, blocks_test, level_test
from tracker.domain.regression.jitter import WINDOW, Jitter
from tracker.domain.regression.pooled_test import PooledTest
from tracker.domain.scores.matrix import FloatArray, IntArray
from tracker.domain.verdicts.decision import is_learned

LAST = 4
"""Newest checkpoints averaged; in a short run at most the size of a block, or 1 if more would leave too few blocks."""

MIN_SAMPLES = 5
"""Minimum number of common samples; with fewer an interval is meaningless."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LedgerSubject:
    """Subject of the ledger: a benchmark, or one of its subsets."""

    track: Track
    jitter: Jitter
    steps: tuple[int, ...]
    """Step of every row of the track's scores."""
    higher_is_better: bool
    chance: float | None = None
    """Score of guessing, as the benchmark reports it; None if unknown."""
    widest: int = BLOCK
    """Maximum checkpoints in a block: those of a usual phase, so that blocks do not mix the phases of a short run."""
    newest: int = LAST
    """Maximum newest checkpoints averaged: those of the newest phase."""
    counted: IntArray
    """Rows of the track without those of losses that are over."""
    loss: Blocks | None = None
    """The two sides of an open or accepted loss; None: the peak is compared with the newest checkpoints."""
    drop: Drop | None = None
    """The numbers of that loss; None: a subset without one of its own, or there are newer checkpoints."""
    accepted_step: int | None = None
    """Step at which the level of that loss was accepted; None: it is open."""

    def block(self, rows: IntArray) -> CheckpointBlock:
        """Return the checkpoints in `rows` as a block."""
        mean = float(self.track.scores.means[rows].mean())
        return CheckpointBlock(
            first_step=self.steps[rows[0]],
            last_step=self.steps[rows[-1]],
            checkpoints=int(rows.size),
            mean=mean if self.higher_is_better else 1.0 - mean,
        )

    def above_chance(self, rows: IntArray) -> PooledTest | None:
        """Return the test of `rows` against guessing; None if the score of guessing is unknown."""
        if self.chance is None:
            return None
        return self.above(rows, self.chance if self.higher_is_better else 1.0 - self.chance)

    def above(self, rows: IntArray, level: float) -> PooledTest:
        """Return the test of `rows` against a score, up is better."""
        return level_test(self.track.scores, rows, level, self.jitter)

    def compare(self, new: IntArray, base: IntArray) -> PooledTest:
        """Return the test of rows `new` against rows `base`; its delta is new minus base, up is better."""
        return blocks_test(self.track.scores, new, base, self.jitter)


@dataclass(frozen=True, kw_only=True)
class CheckpointBlock:
    """Neighbouring checkpoints, averaged."""

    first_step: int
    last_step: int
    checkpoints: int
    mean: float
    """Mean score, as the benchmark reports it."""


@dataclass(frozen=True, kw_only=True)
class Dip:
    """The lowest single checkpoint after the peak (stability gap, De Lange et al. 2023)."""

    step: int
    depth: float
    """mean(peak) - score of the lowest checkpoint."""
    by_chance: float
    """Depth expected of the lowest of as many checkpoints in a healthy run."""


@dataclass(frozen=True, kw_only=True)
class Forgetting:
    """Loss of a benchmark or subset since its best. All differences are positive if something was lost."""

    peak: CheckpointBlock
    """The best of the disjoint blocks before the newest checkpoints."""
    last: CheckpointBlock
    """The newest checkpoints."""
    forgetting: float
    """F = mean(peak) - mean(last), on the samples scored at all these checkpoints."""
    stderr: float
    """Standard error of F: sqrt(item variance + tau^2 (1/m + 1/W))."""
    ci_low: float
    """95 % interval of F, without a correction for the choice of the peak; the p-value has one."""
    ci_high: float
    p_value: float
    """One-sided p of "nothing was lost", times the number of blocks that the peak is the best of."""
    samples: int
    """Number of samples that F is computed on."""
    retention: float | None
    """Share kept of what was learned, from 0 to 1: (last - f0) / (peak - f0), with f0 the score of guessing if known,
    else the first block. None if the peak is less than 2 points above f0, or not significantly (p < .01)."""
    relative: float | None
    """F / mean(peak): the share lost of all that was right. None if nothing was lost."""
    dip: Dip
    raw: float
    """max over earlier checkpoints - the newest one (Chaudhry et al. 2018); interpret only with `raw_by_chance`."""
    raw_by_chance: float
    """`raw` expected of a healthy run on a plateau."""


def forgetting_of(unit: LedgerSubject) -> Forgetting | None:
    """Return the forgetting of `unit`; None with fewer than 5 checkpoints or 5 common samples."""
    means, rows, blocks = unit.track.scores.means, unit.track.rows, _blocks(unit)
    if blocks is None:
        return None
    test = unit.compare(blocks.new, blocks.base)
    if test.n < MIN_SAMPLES:
        return None
    low, high, stderr, p_value = _uncertainty(unit, test, blocks)
    noise = _checkpoint_noise(unit)
    peak_mean = float(means[blocks.base].mean())
    return Forgetting(
        peak=unit.block(blocks.base),
        last=unit.block(blocks.new),
        forgetting=-test.delta,
        stderr=stderr,
        ci_low=-high,
        ci_high=-low,
        p_value=p_value,
        samples=test.n,
        retention=retention_of(
            unit, blocks.base, rows[: blocks.base.size], lost=-test.delta, selected_from=blocks.selected_from
        ),
        relative=-test.delta / peak_mean if test.delta < 0 < peak_mean else None,
        dip=_dip(unit, blocks.base, noise),
        raw=raw_forgetting(means[rows]),
        raw_by_chance=noise * expected_largest(rows.size - 1),
    )


def last_width(checkpoints: int) -> int:
    """Return how many of the newest checkpoints are averaged, of `checkpoints` in all."""
    return min(LAST, peak_width(None, checkpoints))


def peak_rows(unit: LedgerSubject) -> IntArray | None:
    """Return the rows of the best block; None with fewer than 5 checkpoints."""
    blocks = _blocks(unit)
    if blocks is None:
        return None
    return blocks.base


def raw_forgetting(means: FloatArray) -> float:
    """Return the best earlier mean minus the newest one; `means` of shape (T,), T >= 2."""
    return float(means[:-1].max() - means[-1])


def expected_largest(count: int) -> float:
    """Return the approximate expected maximum of k = `count` standard normals: z((k - 3/8) / (k + 1/4)) (Blom 1958)."""
    if count > 1:
        return float(ndtri((count - 0.375) / (count + 0.25)))
    return 0.0


def retention_of(
    unit: LedgerSubject, best: IntArray, first: IntArray, *, lost: float, selected_from: int = 1
) -> float | None:
    """Return 1 - lost / (best - floor), from 0 to 1.

    The floor is the score of guessing if known, else that of the rows `first`. None if `best`, the best of
    `selected_from`, is less than 2 points above the floor, or not significantly, or if `first` is the best.
    """
    rise = unit.above_chance(best)
    if rise is None and first[0] != best[0]:
        rise = unit.compare(best, first)
    if rise is None or not is_learned(rise, selected_from):
        return None
    return min(max(1 - lost / rise.delta, 0.0), 1.0)


def _uncertainty(unit: LedgerSubject, test: PooledTest, blocks: Blocks) -> tuple[float, float, float, float]:
    """Return low and high of the change, its standard error and p: those of the recorded loss if there is one."""
    drop = unit.drop
    if drop is not None and drop.stderr is not None and drop.p_worse is not None:
        return drop.ci_low, drop.ci_high, drop.stderr, drop.p_worse
    low, high = test.interval()
    return max(low, -1.0), min(high, 1.0), test.stderr, test.p_worse(blocks.selected_from)


def _blocks(unit: LedgerSubject) -> Blocks | None:
    # The width depends on the checkpoints so far, not on those planned, so the ledger also works early in a run.
    if unit.loss is not None:
        return unit.loss
    rows, means = unit.counted, unit.track.scores.means
    width, last = min(unit.widest, peak_width(None, rows.size)), min(unit.newest, last_width(rows.size))
    return peak_blocks(rows, means, last, width) or peak_blocks(rows, means, 1, width)


def _dip(unit: LedgerSubject, peak: IntArray, noise: float) -> Dip:
    means, rows = unit.track.scores.means, unit.track.rows
    after = rows[rows > peak[-1]]
    lowest = after[means[after].argmin()]
    return Dip(
        step=unit.steps[lowest],
        depth=float(means[peak].mean() - means[lowest]),
        by_chance=noise * expected_largest(after.size),
    )


def _checkpoint_noise(unit: LedgerSubject) -> float:
    """Return the standard deviation of one checkpoint around the trend: second differences' variance / 6, + tau^2."""
    scores = unit.track.scores
    found = scores.contrasts(second_difference_weights(unit.track.rows, scores.means, WINDOW))
    known = [c.item_variance for c in found if math.isfinite(c.item_variance)]
    return math.sqrt((float(np.mean(known)) / 6 if known else 0.0) + unit.jitter.tau2)
