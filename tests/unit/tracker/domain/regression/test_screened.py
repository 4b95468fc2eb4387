"""Differences where some checkpoints asked a part only: plain where they can be, and never more than is known."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.domain.records.types import Baseline
from tracker.domain.regression.blocks import Blocks
from tracker.domain.regression.detector import ErrorBudget, Track, evidence_of, jitter_of
from tracker.domain.regression.jitter import Jitter
from tracker.domain.regression.pooled_test import independent, pooled_test
from tracker.domain.regression.screened import MIN_CORE, ScreenedScores, screened_differences, screened_scores
from tracker.domain.scores.matrix import BoolArray, FloatArray, ScoreMatrix, empty_matrix, inserted

N = 60
PART = np.arange(N) % 3 == 0


def matrix_of(values: FloatArray, asked: list[BoolArray]) -> ScoreMatrix:
    matrix = empty_matrix(values.shape[1])
    for t, row in enumerate(values):
        matrix = inserted(matrix, t, np.where(asked[t], row, np.nan))
    return matrix


def run_of(whole: list[bool], seed: int = 0) -> tuple[FloatArray, list[BoolArray], ScreenedScores]:
    """Return answers of right and wrong, what was asked, and the scores; the screen is every third sample."""
    rng = np.random.default_rng(seed)
    ability = rng.random(N)
    values = (rng.random((len(whole), N)) < ability).astype(np.float64)
    everything = np.ones(N, dtype=bool)
    asked = [everything if is_whole else PART for is_whole in whole]
    scores = screened_scores(matrix_of(values, asked), np.arange(len(whole)), asked, np.array(whole))
    assert scores is not None
    return values, asked, scores


WHOLE = st.lists(st.booleans(), min_size=6, max_size=14).filter(lambda whole: not all(whole))


@given(WHOLE, st.integers(0, 99), st.data())
def test_a_difference_is_that_of_the_strata_weighted_by_how_well_each_is_known(
    whole: list[bool], seed: int, data: st.DataObject
) -> None:
    values, asked, scores = run_of(whole, seed)
    t = len(whole)
    m = data.draw(st.integers(1, 3))
    blocks = Blocks(baseline=Baseline.RECENT, new=np.arange(t - m, t), base=np.arange(t - m))
    (found,) = scores.contrasts(blocks.weights(t)[np.newaxis])
    deltas, sizes, spreads, variances, weights = [], [], [], [], []
    for columns in (PART, ~PART):
        new = [r for r in blocks.new if asked[r][columns].all()]
        base = [r for r in blocks.base if asked[r][columns].all()]
        if new and base:
            d = values[new][:, columns].mean(axis=0) - values[base][:, columns].mean(axis=0)
            row = np.zeros(t)
            row[new], row[base] = 1 / len(new), -1 / len(base)
            deltas.append(d.mean())
            variances.append(max(d.var(), 1e-12) / (d.size - 1))
            sizes.append(d.size)
            spreads.append(1 / len(new) + 1 / len(base))
            weights.append(row)
    share = np.array(sizes) / np.array(spreads)
    share = share / share.sum()
    assert found.delta == pytest.approx(share @ deltas)
    assert found.item_variance == pytest.approx(share**2 @ variances, rel=1e-6, abs=1e-12)
    assert found.n == sum(sizes)
    assert found.common_fraction == 1.0
    assert found.checkpoint_weights == pytest.approx(share @ np.array(weights))


def test_where_everything_was_asked_on_both_sides_it_is_the_plain_difference() -> None:
    values, _, scores = run_of([True, True, True, False, True, True])
    plain = matrix_of(values, [np.ones(N, dtype=bool)] * 6)
    weights = np.array([[-0.5, -0.5, 0.0, 0.0, 0.0, 1.0]])
    (found,), (expected,) = scores.contrasts(weights), plain.contrasts(weights)
    assert found.delta == pytest.approx(expected.delta)
    assert found.checkpoint_weights == pytest.approx(weights[0])
    jitter = Jitter(tau2=1e-4, variance=1e-9)
    # Strata are taken apart, so what differs between them on average is no noise.
    plain_se, se = (pooled_test(one, jitter, independent(1, 2)).stderr for one in (expected, found))
    assert se == pytest.approx(plain_se, rel=0.1)


def test_a_checkpoint_that_asked_a_part_is_compared_on_that_part_alone() -> None:
    values, _, scores = run_of([True] * 5 + [False])
    (found,) = scores.contrasts(np.array([[-0.2] * 5 + [1.0]]))
    part = values[5, PART] - values[:5, PART].mean(axis=0)
    assert found.n == PART.sum()
    assert found.delta == pytest.approx(part.mean())
    assert found.null_scale == pytest.approx(1.0)


def test_the_mean_of_every_checkpoint_is_over_the_same_samples() -> None:
    values, _, scores = run_of([True, False, True, False, False])
    assert scores.means == pytest.approx(values[:, PART].mean(axis=1))


def test_jitter_is_learned_from_whole_triples_where_there_are_and_from_the_part_elsewhere() -> None:
    _, _, scores = run_of([True] * 6 + [False, False, True, False])
    part, whole, *blocks = screened_differences(scores, np.arange(10))
    assert (whole.deltas.size, part.deltas.size) == (4, 4)
    assert whole.item_variances.mean() == pytest.approx(part.item_variances.mean() / 3, rel=0.3)
    assert [(b.size, b.deltas.size) for b in blocks] == [(2, 4), (2, 1), (4, 0), (4, 0), (6, 0), (6, 0)]


def test_a_triple_that_was_completed_later_shows_jitter_on_the_part_alone() -> None:
    """A screen that is suspicious in a healthy run was chosen for its deviation."""
    _, _, scores = run_of([True] * 9 + [False])
    first = replace(scores, planned_whole=np.arange(10) < 6)
    part, whole, *_ = screened_differences(first, np.arange(10))
    assert (whole.deltas.size, part.deltas.size) == (4, 4)


def test_without_samples_that_all_have_asked_nothing_is_compared() -> None:
    first, second = np.arange(N) < MIN_CORE, np.arange(N) >= N - MIN_CORE
    values, none = np.ones((2, N)), np.zeros(2, dtype=bool)
    asked = [first, second]
    assert screened_scores(matrix_of(values, asked), np.arange(2), asked, none) is None
    assert screened_scores(matrix_of(values, asked), np.arange(1, 2), asked, none) is not None


def test_a_loss_of_the_whole_is_seen_on_a_part_and_clearer_on_all() -> None:
    rng = np.random.default_rng(1)
    n, t = 900, 24
    ability = rng.random(n)
    values = (rng.random((t, n)) < ability).astype(np.float64)
    values[-1, ::5] = 0.0
    part, everything = np.arange(n) % 3 == 0, np.ones(n, dtype=bool)
    p = {}
    for name, last in (("part", part), ("all", everything)):
        asked = [everything if row < 16 or row % 5 == 0 else part for row in range(t - 1)] + [last]
        planned = np.array([one is everything for one in asked])
        scores = screened_scores(matrix_of(values, asked), np.arange(t), asked, planned)
        assert scores is not None
        track = Track(scores=scores, rows=np.arange(t))
        level = ErrorBudget(alpha=0.05, planned=100, benchmarks=5)
        p[name] = min(e.p_worse for e in evidence_of(track, jitter_of([track])[0], level) if e.m == 1)
    assert p["all"] < p["part"] / 10 < 0.001
