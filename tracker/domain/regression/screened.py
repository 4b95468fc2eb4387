"""Scores of a benchmark with screened checkpoints: every difference uses all evaluated samples. Pure.

Samples that were evaluated at the same checkpoints are one stratum. Usually there are two: the screen and the rest.
Each stratum gives its own difference, over the checkpoints that evaluated it on either side. The strata are averaged by
precision: with a_g = 1/m_g + 1/W_g, to which the variance of one sample is proportional,

    D = sum_g l_g D_g,   l_g ~ n_g / a_g,   v = sum_g l_g^2 v_g,   and tau^2 counts sum_s (sum_g l_g w_gs)^2 times

for the weights w_gs of checkpoint s in stratum g. If everything was evaluated, this is the plain difference.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tracker.domain.regression.blocks import Blocks, triple_starts
from tracker.domain.regression.jitter import SIZES, WINDOW, SecondDifferences, differences_at
from tracker.domain.regression.null_variance import null_variances
from tracker.domain.scores.matrix import BoolArray, Contrast, FloatArray, IntArray, ScoreMatrix, columns_of_matrix

MIN_CORE = 10
"""Minimum number of samples evaluated at all checkpoints; with fewer, screened ones are not compared."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Stratum:
    """Samples that were evaluated at the same checkpoints."""

    matrix: ScoreMatrix
    """Of all T checkpoints."""
    asked: BoolArray
    """Shape (T,): whether each checkpoint evaluated them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ScreenedScores:
    """Scores of T checkpoints; implements `detector.Scores`."""

    everything: ScoreMatrix
    """All samples."""
    planned_whole: BoolArray
    """Shape (T,): whether each checkpoint was to evaluate all samples from the start, and did."""
    core: ScoreMatrix
    """Samples that every checkpoint evaluated, for whatever needs a series without missing scores."""
    others: tuple[Stratum, ...]

    @cached_property
    def means(self) -> FloatArray:
        """Mean over the core, shape (T,): only the core has the same samples at every checkpoint."""
        return self.core.means

    def contrasts(self, weights: FloatArray) -> tuple[Contrast, ...]:
        """Return D, its item variance and the weights of checkpoints for every row of `weights`, shape (Q, T)."""
        everywhere = np.ones(weights.shape[1], dtype=bool)
        strata = [Stratum(matrix=self.core, asked=everywhere), *self.others]
        parts = [_part(stratum, weights) for stratum in strata]
        return tuple(_joined([part[q] for part in parts]) for q in range(weights.shape[0]))


def screened_scores(
    matrix: ScoreMatrix, rows: IntArray, asked: Sequence[BoolArray], planned_whole: BoolArray
) -> ScreenedScores | None:
    """Return the scores of checkpoints with different evaluated samples; None with fewer than `MIN_CORE` in common.

    `asked` has for each of the T checkpoints the samples that it evaluated, shape (n,), equal ones as one object;
    `planned_whole`, shape (T,), tells which were not screened first.
    """
    kinds = list({id(one): one for one in asked}.values())
    place = {id(one): at for at, one in enumerate(kinds)}
    kind_of = np.array([place[id(one)] for one in asked])
    _, first, stratum_of = np.unique(_patterns(kinds), return_index=True, return_inverse=True)
    found = np.stack([one[first] for one in kinds])  # kinds x strata
    counting = np.unique(kind_of[rows])
    is_core = found[counting].all(axis=0)
    core = np.flatnonzero(is_core[stratum_of])
    if core.size < MIN_CORE:
        return None
    others = tuple(
        Stratum(matrix=columns_of_matrix(matrix, np.flatnonzero(stratum_of == g)), asked=found[kind_of, g])
        for g in np.flatnonzero(~is_core)
        if found[counting, g].any()
    )
    return ScreenedScores(
        everything=matrix,
        planned_whole=planned_whole & np.array([bool(one.all()) for one in kinds])[kind_of],
        core=columns_of_matrix(matrix, core),
        others=others,
    )


def screened_variances(
    scores: ScreenedScores, rows: IntArray, chosen: Sequence[Blocks], found: Sequence[Contrast], since: int
) -> tuple[float | None, ...]:
    """Return `null_variances` of the contrasts `found` of `chosen`: those of the core, scaled to evaluated samples."""
    pasts = null_variances(scores.core, rows, chosen, since)
    return tuple(
        None if past is None else past * contrast.null_scale for past, contrast in zip(pasts, found, strict=True)
    )


def screened_differences(scores: ScreenedScores, rows: IntArray) -> Iterator[SecondDifferences]:
    """Yield the second differences of `rows`: over all samples if all three were planned in full, else over the core.

    Over all samples, a triple with a screened checkpoint would show a trend as jitter. Full triples show jitter far
    better, so the newest of them count however old they are. But a checkpoint that was completed because its screen was
    suspicious is one of a loss far more often than others, and would show the loss as jitter.
    """
    screened = np.concatenate([[0], np.cumsum(~scores.planned_whole[rows])])
    in_part, in_whole = [], []
    for size, starts in zip(SIZES, triple_starts(scores.means[rows], SIZES), strict=True):
        is_whole = screened[starts + 3 * size] == screened[starts]
        in_part.append(starts[~is_whole][-WINDOW:])
        in_whole.append(starts[is_whole][-WINDOW:])
    parts = _differences(in_part, rows, scores.core)
    wholes = _differences(in_whole, rows, scores.everything)
    for part, whole in zip(parts, wholes, strict=True):
        yield part
        yield whole


def _differences(starts: Sequence[IntArray], rows: IntArray, matrix: ScoreMatrix) -> tuple[SecondDifferences, ...]:
    """Return the second differences of triples that start at `starts` in `rows`, from the rows in use alone."""
    is_used = np.zeros(rows.size, dtype=bool)
    for own, size in zip(starts, SIZES, strict=True):
        is_used[own[:, np.newaxis] + np.arange(3 * size)] = True
    places = np.cumsum(is_used) - 1
    return differences_at([places[own] for own in starts], rows[is_used], matrix.moments)


def _patterns(kinds: Sequence[BoolArray]) -> IntArray:
    """Return a number for every sample, equal if the same kinds of checkpoints evaluated it, shape (n,)."""
    pattern = np.zeros(kinds[0].size, dtype=np.int64)
    for one in kinds:
        _, pattern = np.unique(2 * pattern + one, return_inverse=True)  # keeps numbers small: there may be many kinds
    return pattern


@dataclass(frozen=True, kw_only=True, eq=False)
class _Part:
    contrast: Contrast
    planned: int
    weights: FloatArray
    """Shape (T,), without checkpoints that did not evaluate it; zeros if a side has none left."""

    @property
    def spread(self) -> float:
        """a_g."""
        return float((self.weights**2).sum())


def _part(stratum: Stratum, weights: FloatArray) -> list[_Part]:
    left = _without(weights, ~stratum.asked)
    found = stratum.matrix.contrasts(left)
    n = stratum.matrix.n_samples
    return [_Part(contrast=c, planned=n, weights=left[q]) for q, c in enumerate(found)]


def _without(weights: FloatArray, unasked: BoolArray) -> FloatArray:
    """Return the weights without `unasked` checkpoints, each side with its former sum; zeros if one has none left."""
    left = np.where(unasked, 0.0, weights)
    for sign in (1.0, -1.0):
        side, before = np.maximum(sign * left, 0.0), np.maximum(sign * weights, 0.0).sum(axis=1)
        total = side.sum(axis=1)
        scale = np.divide(before, total, out=np.zeros_like(total), where=total > 0)
        left = np.where(sign * left > 0, left * scale[:, np.newaxis], left)
        left[(total == 0) & (before > 0)] = 0.0
    return left


def _joined(parts: Sequence[_Part]) -> Contrast:
    known = [part for part in parts if part.weights.any() and part.contrast.n > 1]
    if not known:
        return parts[0].contrast
    importance = np.array([part.contrast.n / part.spread for part in known])
    shares = importance / importance.sum()
    core, n, planned = parts[0], 0, 0
    weights = np.zeros_like(core.weights)
    delta = item_variance = scale = 0.0
    for share, part in zip(shares, known, strict=True):
        weights = weights + share * part.weights
        delta += share * part.contrast.delta
        item_variance += share**2 * part.contrast.item_variance
        scale += share**2 * part.spread / core.spread * (core.planned - 1) / (part.planned - 1)
        n += part.contrast.n
        planned += part.planned
    return Contrast(
        delta=float(delta),
        item_variance=float(item_variance),
        n=n,
        common_fraction=n / planned,
        checkpoint_weights=weights,
        null_scale=float(scale),
    )
