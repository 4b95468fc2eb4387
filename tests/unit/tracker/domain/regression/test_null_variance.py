"""How much a contrast varies when nothing is lost."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.tracker.domain.regression.tables import flipping, matrix_of
from tracker.domain.records.types import Baseline
from tracker.domain.regression.blocks import Blocks, peak_blocks, recent_blocks
from tracker.domain.regression.jitter import Jitter
from tracker.domain.regression.null_variance import GUARD, HISTORY, MIN_HISTORY, null_variances
from tracker.domain.regression.pooled_test import independent, null_test, pooled_test
from tracker.domain.scores.matrix import Contrast, FloatArray, inserted


def recent(table: FloatArray, m: int, since: int = 0) -> float | None:
    blocks = recent_blocks(np.arange(len(table)), m)
    assert blocks is not None
    return null_variances(matrix_of(table), np.arange(len(table)), [blocks], since)[0]


@pytest.mark.parametrize("m", [1, 2, 4, 8])
def test_it_is_known_from_the_fifth_full_contrast_before_the_new_block_on(m: int) -> None:
    first = 10 + (MIN_HISTORY - 1) + 2 * m
    assert recent(flipping(0, first - 1), m) is None
    assert recent(flipping(0, first), m) is not None


def test_it_is_the_mean_of_what_was_seen_before_the_new_block() -> None:
    table, m = flipping(1, 30), 2
    past = []
    for end in range(12, 29):  # the last of these blocks ends just before the new one
        d = table[end - m : end].mean(axis=0) - table[end - m - 10 : end - m].mean(axis=0)
        past.append(d.var(ddof=1) / d.size)
    assert recent(table, m) == pytest.approx(np.mean(past))


@pytest.mark.parametrize("m", [1, 4, 8])
def test_a_loss_in_the_new_block_is_not_in_it(m: int) -> None:
    table = flipping(2, 40)
    lost = table.copy()
    lost[-m:, :60] = 0.0
    assert recent(lost, m) == pytest.approx(recent(table, m))
    lost[-m - 1, :60] = 0.0
    assert recent(lost, m) != pytest.approx(recent(table, m))


def test_only_the_newest_history_counts() -> None:
    calm = flipping(3, HISTORY + 11)
    wild = np.concatenate([flipping(4, 20, flips=1.0), calm])
    assert recent(wild, 1) == pytest.approx(recent(calm, 1))


def test_it_starts_where_training_changed_its_ways() -> None:
    table = flipping(5, 40)
    assert recent(table, 1, since=34) == pytest.approx(recent(table[24:], 1))
    assert recent(table, 1, since=36) is None


def test_against_the_peak_the_best_block_of_each_time_counts() -> None:
    table = flipping(6, 40)
    table[10:20] = np.maximum(table[10:20], flipping(7, 10, ability=0.5))
    matrix, rows = matrix_of(table), np.arange(40)
    chosen = peak_blocks(rows, matrix.means, 1, 10)
    assert chosen is not None
    past = []
    for t in range(20, 39):
        then = peak_blocks(np.arange(t + 1), matrix.means, 1, 10)
        assert then is not None
        d = table[t] - table[then.base].mean(axis=0)
        past.append(d.var(ddof=1) / d.size)
    assert null_variances(matrix, rows, [chosen])[0] == pytest.approx(np.mean(past))


def test_against_a_pinned_model_every_earlier_checkpoint_counts() -> None:
    table = flipping(8, 9)
    pinned = flipping(9, 1)[0]
    matrix = inserted(matrix_of(table), 9, pinned)
    chosen = Blocks(baseline=Baseline.PINNED, new=np.array([8]), base=np.array([9]))
    past = [np.var(row - pinned, ddof=1) / row.size for row in table[:8]]
    assert null_variances(matrix, np.arange(9), [chosen])[0] == pytest.approx(np.mean(past))


def test_rows_that_do_not_count_are_not_in_it() -> None:
    table = flipping(10, 40)
    with_others = np.insert(table, [5, 20, 33], flipping(11, 3, ability=0.1), axis=0)
    rows = np.delete(np.arange(43), [5, 21, 35])
    assert with_others[rows].tolist() == table.tolist()
    blocks = recent_blocks(rows, 2)
    assert blocks is not None
    assert null_variances(matrix_of(with_others), rows, [blocks])[0] == pytest.approx(recent(table, 2))


def test_contrasts_with_missing_scores_are_passed_over() -> None:
    table = flipping(12, 30)
    table[25, 3] = np.nan
    found = recent(table, 1)
    assert found is not None
    whole = [t for t in range(10, 29) if t < 25]
    d = [table[t] - table[t - 10 : t].mean(axis=0) for t in whole]
    assert found == pytest.approx(np.mean([x.var(ddof=1) / x.size for x in d]))


# --- the test on it

NOISE = Jitter(tau2=4e-6, variance=1e-11)


def contrast(delta: float, variance: float, n: int = 500) -> Contrast:
    return Contrast(delta=delta, item_variance=variance, n=n, common_fraction=1.0)


@given(st.floats(-0.3, 0.3), st.floats(1e-7, 1e-2), st.floats(1e-7, 1e-2))
def test_the_variance_of_now_is_never_belittled_beyond_the_guard(delta: float, now: float, past: float) -> None:
    test = null_test(contrast(delta, now), NOISE, independent(4, 10), past)
    used = test.variance - NOISE.tau2 * (1 / 4 + 1 / 10)
    assert used == pytest.approx(max(past, GUARD * now) * (1 + 2 / 500), rel=1e-6)
    assert test.item_stderr == math.sqrt(now)


def test_without_a_past_the_variance_of_now_counts() -> None:
    shares = independent(1, 10)
    assert null_test(contrast(-0.05, 1e-4), NOISE, shares, None) == pooled_test(contrast(-0.05, 1e-4), NOISE, shares)


def test_few_samples_have_heavy_tails() -> None:
    few, many = (null_test(contrast(-0.05, 1e-4, n), NOISE, independent(1, 10), None).df for n in (20, 2000))
    assert few == pytest.approx(4 + 20 * (1 + 2 / 20) ** 2, rel=0.1)
    assert many > 20 * few


@given(st.integers(0, 10_000))
def test_the_order_of_samples_does_not_matter(seed: int) -> None:
    table = flipping(seed, 24, n=50)
    order = np.random.default_rng(seed).permutation(50)
    assert recent(table[:, order], 2) == pytest.approx(recent(table, 2))
