"""Which checkpoints are on either side of a test."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.domain.regression.blocks import (
    BLOCK,
    peak_blocks,
    peak_width,
    recent_blocks,
    second_difference_weights,
)

sizes = st.integers(0, 60)
pooled = st.sampled_from([1, 2, 4, 8])


@pytest.mark.parametrize(("m", "first"), [(1, 2), (2, 3), (4, 5), (8, 9)])
def test_recent_needs_an_earlier_checkpoint(m: int, first: int) -> None:
    assert recent_blocks(np.arange(first - 1), m) is None
    found = recent_blocks(np.arange(first), m)
    assert found is not None
    assert found.base.tolist() == [0]


def test_recent_is_at_most_the_ten_just_before() -> None:
    found = recent_blocks(np.arange(30), 4)
    assert found is not None
    assert (found.new.tolist(), found.base.tolist()) == ([26, 27, 28, 29], list(range(16, 26)))
    assert found.selected_from == 1


def test_the_peak_is_the_best_of_the_disjoint_blocks_before_the_new_ones() -> None:
    means = np.zeros(45)
    means[10:20] = 0.5
    means[41:] = 1.0
    found = peak_blocks(np.arange(45), means, 4, 10)
    assert found is not None
    assert (found.base.tolist(), found.selected_from) == (list(range(10, 20)), 4)
    assert found.new.tolist() == [41, 42, 43, 44]


def test_one_block_is_no_choice_and_no_peak() -> None:
    assert peak_blocks(np.arange(20), np.zeros(20), 1, 10) is None
    assert peak_blocks(np.arange(21), np.zeros(21), 1, 10) is not None


def test_rows_that_do_not_count_are_passed_over() -> None:
    rows = np.array([0, 1, 2, 3, 8, 9, 10])
    means = np.linspace(0.0, 1.0, 11)
    found = peak_blocks(rows, means, 1, 2)
    assert found is not None
    assert (found.base.tolist(), found.selected_from) == ([8, 9], 3)
    recent = recent_blocks(rows, 2)
    assert recent is not None
    assert (recent.new.tolist(), recent.base.tolist()) == ([9, 10], [0, 1, 2, 3, 8])


@pytest.mark.parametrize(
    ("planned", "seen", "width"),
    [(100, 3, 10), (50, 50, 10), (30, 3, 6), (10, 10, 2), (3, 3, 2), (None, 12, 2), (None, 30, 6), (None, 400, 10)],
)
def test_short_runs_have_narrower_blocks(planned: int | None, seen: int, width: int) -> None:
    assert peak_width(planned, seen) == width


@given(sizes, pooled, st.integers(2, BLOCK))
def test_the_two_sides_never_share_a_checkpoint_and_weigh_the_same(size: int, m: int, width: int) -> None:
    rows = 2 * np.arange(size)
    means = np.sin(np.arange(2 * size + 1.0))
    for found in (recent_blocks(rows, m), peak_blocks(rows, means, m, width)):
        if found is not None:
            weights = found.weights(2 * size + 1)
            assert found.base.max() < found.new.min()
            assert found.new.tolist() == rows[size - m :].tolist()
            assert weights.sum() == pytest.approx(0, abs=1e-12)
            assert weights[found.new].sum() == pytest.approx(1)
            assert np.flatnonzero(weights).tolist() == sorted([*found.base.tolist(), *found.new.tolist()])


@given(sizes, st.integers(1, 50), st.sampled_from([1, 2, 4]))
def test_second_differences_are_blind_to_a_steady_trend(checkpoints: int, limit: int, size: int) -> None:
    trend = np.linspace(3.0, 5.0, checkpoints)
    weights = second_difference_weights(np.arange(checkpoints), trend, limit, size)
    assert weights.shape == (max(0, min(limit + 2, checkpoints) - 3 * size + 1), checkpoints)
    assert weights @ trend == pytest.approx(np.zeros(len(weights)), abs=1e-9)
    assert np.abs(weights).sum(axis=1) == pytest.approx(np.full(len(weights), 4.0))


def test_second_differences_are_those_of_the_newest_triples() -> None:
    rows = np.array([0, 2, 3, 5])
    y = np.array([1.0, 99.0, 4.0, 2.0, 99.0, 7.0])
    assert (second_difference_weights(rows, y, 40) @ y).tolist() == [1 - 8 + 2, 4 - 4 + 7]
    assert (second_difference_weights(rows, y, 1) @ y).tolist() == [7]


def test_blocks_of_second_differences_do_not_reach_over_a_jump() -> None:
    y = np.random.default_rng(0).normal(0, 0.01, 40)
    y[20:] += 0.5
    starts = [np.flatnonzero(w)[0] for w in second_difference_weights(np.arange(40), y, 40, 4)]
    assert starts == [*range(9), *range(20, 29)]
    assert len(second_difference_weights(np.arange(40), y, 40)) == 38
