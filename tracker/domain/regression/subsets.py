"""Losses of single subsets that the whole benchmark hides: 20 points on 5 % of the subjects move it by 1. Pure.

The newest four checkpoints are compared with the same baseline blocks, subset by subset. A subset has few samples, so
its item variance is shrunk to the benchmark's, and its jitter is pooled over all subsets of the benchmark.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr

from tracker.domain.records.types import Baseline
from tracker.domain.regression.blocks import Blocks, peak_blocks, peak_width, recent_blocks
from tracker.domain.regression.detector import ErrorBudget, Evidence, Track
from tracker.domain.regression.jitter import MEDIAN_CHI2, WINDOW, Jitter
from tracker.domain.regression.pooled_test import PooledTest
from tracker.domain.scores.grouping import Grouping
from tracker.domain.scores.matrix import FloatArray, IntArray, ScoreMatrix, values_at

SUBSET_POOLED = 4
MIN_SAMPLES = 5

_PSEUDO_SAMPLES = 20.0
"""Weight of the benchmark's variance in that of every subset, in samples."""
_TAU_START = 0.008
_TAU_FLOOR = 0.003
_PRIOR_WEIGHT = 10.0
_HISTORY_WEIGHT = 0.5
"""Weight of one second difference: they overlap, so each counts half."""
_CLIP = 3.0
_MIN_VARIANCE = 1e-12
_MAX_DF = 200.0


def subset_evidence(
    matrix: ScoreMatrix, track: Track, grouping: Grouping, level: ErrorBudget, followed: Collection[str] = ()
) -> Mapping[str, tuple[Evidence, ...]]:
    """Return by name the tests of each subset that is significantly worse in one of them, and of the `followed` ones.

    The level of each test is that of `level` divided by the number of subsets. Subsets with fewer than `MIN_SAMPLES`
    samples are not tested.
    """
    chosen = (
        recent_blocks(track.rows, SUBSET_POOLED),
        peak_blocks(track.rows, matrix.means, SUBSET_POOLED, peak_width(level.planned, track.rows.size)),
    )
    blocks = [b for b in chosen if b is not None]
    if not blocks or len(grouping.names) < 2:
        return {}
    jitter = Jitter(tau2=_tau2(matrix, track, grouping), variance=0.0)
    position = track.dropped + track.rows.size - 1
    alpha_test = level.alpha_test(position, SUBSET_POOLED, Baseline.RECENT) / len(grouping.names)
    parts = [_parts(matrix, b, grouping, jitter, track.decoding) for b in blocks]
    wanted = np.isin(np.array(grouping.names, dtype=object), list(followed))
    enough = np.ones(wanted.size, dtype=bool)
    for b, part in zip(blocks, parts, strict=True):
        wanted |= part.p_worse * b.selected_from < alpha_test
        enough &= part.n >= MIN_SAMPLES
    found: dict[str, tuple[Evidence, ...]] = {}
    for group in np.flatnonzero(wanted & enough).tolist():
        found[grouping.names[group]] = tuple(
            Evidence(blocks=b, test=part.test(group), alpha_test=alpha_test, jitter=jitter)
            for b, part in zip(blocks, parts, strict=True)
        )
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class _Parts:
    """One contrast per subset; all arrays of shape (C,)."""

    delta: FloatArray
    stderr: FloatArray
    item_stderr: FloatArray
    df: FloatArray
    n: IntArray
    planned: IntArray

    @property
    def p_worse(self) -> FloatArray:
        p: FloatArray = stdtr(self.df, self.delta / self.stderr)
        return p

    def test(self, group: int) -> PooledTest:
        return PooledTest(
            delta=float(self.delta[group]),
            stderr=float(self.stderr[group]),
            item_stderr=float(self.item_stderr[group]),
            df=float(self.df[group]),
            n=int(self.n[group]),
            common_fraction=float(self.n[group] / self.planned[group]),
        )


def _parts(matrix: ScoreMatrix, blocks: Blocks, grouping: Grouping, jitter: Jitter, decoding: float) -> _Parts:
    differences = values_at(matrix, blocks.new).mean(axis=0) - values_at(matrix, blocks.base).mean(axis=0)
    scored = ~np.isnan(differences)
    d, index = differences[scored], grouping.index[scored]
    c = len(grouping.names)
    n = np.bincount(index, minlength=c)
    safe = np.maximum(n, 1)
    delta = np.bincount(index, weights=d, minlength=c) / safe
    within = np.maximum(np.bincount(index, weights=d * d, minlength=c) - safe * delta * delta, 0.0)
    spread = float(d.var()) if d.size else 0.0
    variance = np.maximum((_PSEUDO_SAMPLES * spread + within) / (_PSEUDO_SAMPLES + n) / safe, _MIN_VARIANCE)
    share = 1 / blocks.new.size + 1 / blocks.base.size
    return _Parts(
        delta=delta,
        stderr=np.sqrt(np.maximum(variance, decoding * share / safe) + jitter.tau2 * share),
        item_stderr=np.sqrt(variance),
        df=np.minimum(n + _PSEUDO_SAMPLES, _MAX_DF),
        n=n,
        planned=np.bincount(grouping.index, minlength=c),
    )


def _tau2(matrix: ScoreMatrix, track: Track, grouping: Grouping) -> float:
    """Return the squared jitter of a subset, from the second differences of all subsets; see `jitter`."""
    rows = track.rows[track.noise_from :][-(WINDOW + 2) :]
    excess = _excess(values_at(matrix, rows), grouping) if rows.size > 2 else np.zeros(0)
    history = _HISTORY_WEIGHT * excess.size
    mixed = (_PRIOR_WEIGHT * _TAU_START**2 + _HISTORY_WEIGHT * float(excess.sum())) / (_PRIOR_WEIGHT + history)
    return max(mixed, _TAU_FLOOR**2)


def _excess(values: FloatArray, grouping: Grouping) -> FloatArray:
    """Return the variance of subset means beyond that of their samples at each second difference, shape (h,)."""
    scored = ~np.isnan(values).any(axis=0)
    order = np.flatnonzero(scored)[np.argsort(grouping.index[scored], kind="stable")]
    sizes = np.bincount(grouping.index[scored], minlength=len(grouping.names))
    used = sizes[sizes > 1]
    order = order[np.isin(grouping.index[order], np.flatnonzero(sizes > 1))]
    if not used.size:
        return np.zeros(0)
    c = np.diff(values[:, order], n=2, axis=0)
    starts = np.concatenate([[0], np.cumsum(used)[:-1]])
    means = np.add.reduceat(c, starts, axis=1) / used
    items = np.maximum(np.add.reduceat(c * c, starts, axis=1) / used - means**2, 0.0) / (used - 1)
    squares = means**2
    cap = _CLIP**2 * np.maximum(np.median(squares, axis=1, keepdims=True) / MEDIAN_CHI2, items)
    weights = used.astype(np.float64) ** 2
    excess: FloatArray = ((np.minimum(squares, cap) - items) * weights).sum(axis=1) / weights.sum() / 6
    return excess
