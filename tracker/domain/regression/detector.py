"""All tests of one checkpoint: every benchmark, the newest 1, 2, 4 and 8 checkpoints against two baseline blocks. Pure.

The method was chosen by the simulations of benchmarks/verdicts/RESULTS.md: pooled paired contrasts against a recent and
a peak block, the item variance of the same contrast before the new block, a jitter term estimated from the run itself,
a t tail, and a level shared over the planned run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Protocol

import numpy as np

from tracker.domain.records.types import Baseline
from tracker.domain.regression.blocks import Blocks, newest_of, peak_blocks, peak_width, recent_blocks, triple_starts
from tracker.domain.regression.budget import DEFAULT, POOLED, Design, alpha_per_checkpoint
from tracker.domain.regression.jitter import (
    SIZES,
    WINDOW,
    Jitter,
    SecondDifferences,
    differences_at,
    estimate_jitter,
    persistence_of,
    persistent_shares,
)
from tracker.domain.regression.null_variance import null_variances
from tracker.domain.regression.pooled_test import PooledTest, null_test, pooled_test
from tracker.domain.regression.screened import ScreenedScores, screened_differences, screened_variances
from tracker.domain.scores.matrix import Contrast, FloatArray, IntArray, Moments, ScoreMatrix, moments_of
from tracker.domain.scores.statistics.paired import t_cdf

BASELINES = (Baseline.RECENT, Baseline.PEAK)

ALONE = 0.5
"""Change that one checkpoint always shows by itself."""

_TAIL = 5.0
"""Of N draws from Student's t with 3 degrees, one is beyond `_TAIL` * cbrt(N) standard deviations in 0.2 % of cases."""
_LEAST = 30.0
"""In short runs the jitter is not known well."""
_CHECKPOINTS = 100
"""Of a run of unknown length."""

_LARGEST_BLOCK = max(POOLED)

_OTHERS = 3 * _LARGEST_BLOCK
"""Smallest number of checkpoints that show the noise without those that are tested."""

_PERSISTENT = 0.25
"""Mean of what is known about r above which jitter counts as persistent: twice that of runs without, half of r = .6."""

OTHERS_P = 0.0001
"""Level at which the other checkpoints of a new block must show its change."""


class Scores(Protocol):
    """Scores of one benchmark: `ScoreMatrix`, `ScreenedScores`, or means and standard errors alone."""

    @property
    def means(self) -> FloatArray:
        """Mean score of every checkpoint, shape (T,); higher is better."""

    def contrasts(self, weights: FloatArray) -> tuple[Contrast, ...]:
        """Return D and its item variance for every row of `weights`, shape (Q, T)."""


@dataclass(frozen=True, kw_only=True)
class ErrorBudget:
    """The levels of the tests of one checkpoint."""

    alpha: float
    """For the whole run and all its benchmarks."""
    planned: int | None
    """Expected number of checkpoints of the run; None: unknown."""
    benchmarks: int
    """K, the number of benchmarks."""
    pinned: bool = False
    """Whether there is a pinned baseline as well."""
    design: Design = DEFAULT

    def alpha_test(self, position: int, m: int, baseline: Baseline) -> float:
        """Return the level of one test at the checkpoint at `position`, counted from 0; 0 for an untested size."""
        baselines = BASELINES if not self.pinned else (*BASELINES, Baseline.PINNED)
        weights = self.design.by_baseline
        share = self.design.by_pooled.get(m, 0.0) * weights[baseline] / sum(weights[b] for b in baselines)
        return alpha_per_checkpoint(self.alpha, position, self.planned) / self.benchmarks * share

    def alone_jitters(self, position: int) -> float:
        """Return the smallest change that one checkpoint shows by itself, in standard deviations of the jitter.

        Jitter has heavy tails, and a broken checkpoint may be back at the next: the more checkpoints and benchmarks
        there are, the farther the farthest of them is off.
        """
        checkpoints = max(self.planned or _CHECKPOINTS, position + 1)
        return max(_LEAST, _TAIL * math.cbrt(checkpoints * self.benchmarks))


@dataclass(frozen=True, kw_only=True)
class Track:
    """One benchmark up to the candidate."""

    scores: Scores
    rows: IntArray
    """Rows of `scores` that count, ordered by step; the last one is the candidate."""
    noise_from: int = 0
    """Index into `rows` at which the history for the jitter starts: a new training phase."""
    noise_to: int | None = None
    """Index into `rows` at which it ends: the onset of an open loss; None: there is none."""
    pinned_row: int | None = None
    """Row of `scores`, not in `rows`, of a model that every checkpoint is compared with; None: there is none."""
    dropped: int = 0
    """Number of earlier checkpoints of the run that no longer count but have spent their share of alpha."""
    decoding: float = 0.0
    """Variance of one sample's score by decoding alone, from a calibration: a lower limit; 0: unknown."""

    def before(self, back: int) -> Track:
        """Return the track as of `back` checkpoints before the candidate."""
        return replace(self, rows=self.rows[: self.rows.size - back])


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One test of one benchmark."""

    blocks: Blocks
    test: PooledTest
    alpha_test: float
    jitter: Jitter
    new_means: FloatArray | None = field(default=None, compare=False)
    """Mean score of each checkpoint of the new block, shape (m,); None: unknown."""
    alone_jitters: float = 0.0
    """Smallest change that one checkpoint shows by itself, in standard deviations of the jitter."""

    def above_decoding(self, decoding: float) -> Evidence:
        """Return this evidence with a variance of at least that of repeated evaluations.

        A lower limit, not an additional term: the flips of samples already include those by decoding. Each evaluation
        on either side has its own, so the number of checkpoints divides it as it does jitter.
        """
        if decoding == 0:
            return self
        share = 1 / self.m + 1 / self.blocks.base.size
        variance = (decoding / max(self.test.n, 1) + self.jitter.tau2) * share
        return replace(self, test=self.test.with_variance_of_at_least(variance))

    @property
    def m(self) -> int:
        """Number of newest checkpoints that were averaged."""
        return int(self.blocks.new.size)

    @cached_property
    def p_worse(self) -> float:
        """One-sided p of "worse", corrected for the selection of the baseline."""
        return self.test.p_worse(self.blocks.selected_from)

    @property
    def p_better(self) -> float:
        """One-sided p of "better", corrected for the selection of the baseline."""
        return self.test.p_better(self.blocks.selected_from)

    def smallest(self, min_effect: float) -> float:
        """Return the smallest change that counts: of one checkpoint only one that its jitter cannot explain."""
        if self.m > 1 or self.new_means is None:
            return min_effect
        return max(min_effect, min(self.alone_jitters * math.sqrt(self.jitter.tau2), ALONE))

    def is_loss(self, min_effect: float) -> bool:
        """Return whether this is a loss: significant at the run's level, large enough, and not of one checkpoint."""
        is_large = self.p_worse < self.alpha_test and self.test.delta <= -self.smallest(min_effect)
        return is_large and self._is_shared(sign=-1)

    def is_gain(self, min_effect: float) -> bool:
        """Return whether this is a gain: the reverse of `is_loss`."""
        is_large = self.p_better < self.alpha_test and self.test.delta >= self.smallest(min_effect)
        return is_large and self._is_shared(sign=1)

    def _is_shared(self, sign: int) -> bool:
        """Return whether the other checkpoints of the new block show the change, too, without the farthest one.

        Single checkpoints are off by far more than a normal distribution allows.
        """
        if self.new_means is None or self.m == 1:
            return True
        mean, width = float(self.new_means.mean()), self.blocks.base.size
        farthest = float((sign * self.new_means).max()) * sign
        delta = self.test.delta + (mean - farthest) / (self.m - 1)
        stderr = self.test.stderr * math.sqrt((1 / (self.m - 1) + 1 / width) / (1 / self.m + 1 / width))
        return t_cdf(-sign * delta / stderr, self.test.df) < OTHERS_P


def jitter_of(tracks: Sequence[Track]) -> tuple[Jitter, ...]:
    """Return the jitter of every benchmark at the candidate, estimated from all of them.

    The checkpoints that are tested do not count if there are enough others, unless the jitter persists: then it may
    have grown, and nothing else shows that.
    """
    earlier = [_before_tests(track) for track in tracks]
    found = estimate_jitter([_second_differences(track) for track in earlier])
    if max(map(persistence_of, found), default=0.0) < _PERSISTENT:
        return found
    return estimate_jitter([_second_differences(track) for track in tracks])


def blocks_test(scores: Scores, new: IntArray, base: IntArray, jitter: Jitter) -> PooledTest:
    """Return the test of rows `new` against rows `base`; its delta is new minus base, up is better."""
    blocks = Blocks(baseline=Baseline.GIVEN, new=new, base=base)
    (contrast,) = scores.contrasts(blocks.weights(scores.means.size)[np.newaxis])
    return pooled_test(contrast, jitter, _shares(blocks, contrast, scores.means.size))


def return_test(scores: Scores, new: IntArray, before: IntArray, lost: IntArray, jitter: Jitter) -> PooledTest:
    """Return the test of rows `new` against the level halfway between those `before` a loss and the `lost` ones."""
    weights = np.zeros((1, scores.means.size))
    weights[0, new] = 1 / new.size
    weights[0, before] = -0.5 / before.size
    weights[0, lost] -= 0.5 / lost.size
    used = np.flatnonzero(weights[0])
    (contrast,) = scores.contrasts(weights)
    return pooled_test(contrast, jitter, persistent_shares(weights[0, used], used))


def level_test(scores: Scores, rows: IntArray, level: float, jitter: Jitter) -> PooledTest:
    """Return the test of `rows` against a fixed score, such as that of guessing."""
    weights = np.zeros((1, scores.means.size))
    weights[0, rows] = 1 / rows.size
    (contrast,) = scores.contrasts(weights)
    shares = persistent_shares(weights[0, rows], rows)
    return pooled_test(replace(contrast, delta=contrast.delta - level), jitter, shares)


def evidence_of(track: Track, jitter: Jitter, level: ErrorBudget) -> tuple[Evidence, ...]:
    """Return the tests of one benchmark at its candidate, the smallest m first; () if it is the first one."""
    return evidence_on(track, tuple(_blocks(track, peak_width(level.planned, track.rows.size))), jitter, level)


def evidence_on(track: Track, chosen: Sequence[Blocks], jitter: Jitter, level: ErrorBudget) -> tuple[Evidence, ...]:
    """Return one test for each of the `chosen` blocks."""
    if not chosen:
        return ()
    means = track.scores.means
    found = track.scores.contrasts(np.array([b.weights(means.size) for b in chosen]))
    position = track.dropped + track.rows.size - 1
    pasts = _pasts(track, chosen, found) if level.design.null_variance else None
    tests = []
    for i, (b, contrast) in enumerate(zip(chosen, found, strict=True)):
        shares = _shares(b, contrast, means.size)
        if pasts is None:
            test = pooled_test(contrast, jitter, shares)
        else:
            test = null_test(contrast, jitter, shares, pasts[i])
        level_of_test = level.alpha_test(position, b.new.size, b.baseline)
        one = Evidence(
            blocks=b,
            test=test,
            alpha_test=level_of_test,
            jitter=jitter,
            new_means=means[b.new],
            alone_jitters=level.alone_jitters(position),
        )
        tests.append(one.above_decoding(track.decoding))
    return tuple(tests)


def _shares(blocks: Blocks, contrast: Contrast, n_rows: int) -> FloatArray:
    """Return the shares of jitter in a contrast. Rows are in the order of training, except that of a pinned model."""
    weights = contrast.checkpoint_weights
    if weights is None:
        weights = blocks.weights(n_rows)
    used = np.flatnonzero(weights)
    if blocks.baseline is not Baseline.PINNED:
        return persistent_shares(weights[used], used)
    is_pinned = np.isin(used, blocks.base)
    own, pinned = used[~is_pinned], weights[used[is_pinned]]
    shares: FloatArray = persistent_shares(weights[own], own) + float((pinned**2).sum())
    return shares


def _pasts(track: Track, chosen: Sequence[Blocks], found: Sequence[Contrast]) -> Sequence[float | None] | None:
    """Return the earlier item variance of each contrast; None if only means are known."""
    if isinstance(track.scores, ScoreMatrix):
        return null_variances(track.scores, track.rows, chosen, track.noise_from)
    if isinstance(track.scores, ScreenedScores):
        return screened_variances(track.scores, track.rows, chosen, found, track.noise_from)
    return None


def _second_differences(track: Track) -> tuple[SecondDifferences, ...]:
    rows = track.rows[track.noise_from : track.noise_to]
    if isinstance(track.scores, ScreenedScores):
        return tuple(screened_differences(track.scores, rows))
    newest = newest_of(rows, WINDOW)
    starts = triple_starts(track.scores.means[newest], SIZES)
    return differences_at(starts, newest, partial(_moments, track.scores))


def _before_tests(track: Track) -> Track:
    """Return the track whose noise ends before the checkpoints that may show a loss, if there are enough others."""
    last = track.rows.size - _LARGEST_BLOCK
    if track.noise_to is None and last - track.noise_from >= _OTHERS:
        return replace(track, noise_to=last)
    return track


def _moments(scores: Scores, rows: IntArray, weights: FloatArray) -> Moments:
    """Return the contrasts of `weights`, shape (Q, R), of the checkpoints `rows`."""
    if isinstance(scores, ScoreMatrix):  # without an object for each of some hundred contrasts
        return scores.moments(rows, weights)
    wide = np.zeros((weights.shape[0], scores.means.size))
    wide[:, rows] = weights
    return moments_of(scores.contrasts(wide))


def _blocks(track: Track, width: int) -> Iterator[Blocks]:
    means = track.scores.means
    for m in POOLED:
        peak = peak_blocks(track.rows, means, m, width, track.noise_to)
        for blocks in (recent_blocks(track.rows, m), peak):
            if blocks is not None:
                yield blocks
        if track.pinned_row is not None and track.rows.size >= m:
            base = np.array([track.pinned_row], dtype=np.int64)
            yield Blocks(baseline=Baseline.PINNED, new=track.rows[-m:], base=base)
