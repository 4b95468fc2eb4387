"""Matrices of scores: whatever the order of their making, they are what numpy computes from the plain table."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.unit.tracker.domain.regression.tables import matrix_of as inserted_one_by_one
from tracker.domain.scores.flips import flips
from tracker.domain.scores.matrix import (
    FloatArray,
    ScoreMatrix,
    empty_matrix,
    encoded,
    inserted,
    matrix_of,
    rearranged,
    values_at,
    without_rows,
)

RIGHT_OR_WRONG = st.sampled_from([0.0, 1.0, math.nan])
ANY_SCORE = st.one_of(st.floats(-10, 10), st.sampled_from([0.0, 0.25, 0.5, 1.0, math.nan]))


def tables(elements: st.SearchStrategy[float], max_samples: int = 12) -> st.SearchStrategy[FloatArray]:
    shapes = st.tuples(st.integers(1, 6), st.integers(1, max_samples))
    return shapes.flatmap(lambda shape: arrays(np.float64, shape, elements=elements))


def at_once(table: FloatArray) -> ScoreMatrix:
    palette = empty_matrix(0).palette
    rows = []
    for values in table:
        rows.append(encoded(values, palette))
        palette = rows[-1].palette
    return matrix_of(rows, [None] * len(rows), table.shape[1])


def check(matrix: ScoreMatrix, table: FloatArray, tolerance: float = 0.0) -> None:
    """Everything that a matrix holds, against the table; tolerance 0 is exactly."""
    filled = np.nan_to_num(table)
    np.testing.assert_array_equal(values_at(matrix, np.arange(len(table))), table)
    products = matrix.products(np.arange(table.shape[0]))
    np.testing.assert_allclose(products, filled @ filled.T, rtol=tolerance, atol=tolerance * 100 * table.shape[1])
    np.testing.assert_allclose(matrix.sums, filled.sum(axis=1), rtol=tolerance, atol=tolerance * 10 * table.shape[1])
    np.testing.assert_array_equal(matrix.missing, np.isnan(table).sum(axis=1))
    assert matrix.n_samples == table.shape[1]


@given(tables(RIGHT_OR_WRONG), st.randoms(use_true_random=False))
def test_right_and_wrong_are_exact_in_whatever_order_checkpoints_come(table: FloatArray, random: object) -> None:
    order = list(range(len(table)))
    random.shuffle(order)  # type: ignore[attr-defined]
    matrix, known = empty_matrix(table.shape[1]), list[int]()
    for t in order:
        position = sum(other < t for other in known)
        matrix = inserted(matrix, position, table[t])
        known.append(t)
        check(matrix, table[sorted(known)])


@given(tables(ANY_SCORE), st.randoms(use_true_random=False))
def test_scores_between_agree_to_rounding_in_whatever_order_checkpoints_come(table: FloatArray, random: object) -> None:
    order = list(range(len(table)))
    random.shuffle(order)  # type: ignore[attr-defined]
    matrix, known = empty_matrix(table.shape[1]), list[int]()
    for t in order:
        matrix = inserted(matrix, sum(other < t for other in known), table[t])
        known.append(t)
    check(matrix, table, tolerance=1e-12)


@given(tables(ANY_SCORE))
def test_all_checkpoints_at_once_are_what_inserting_gives(table: FloatArray) -> None:
    one_by_one, together = inserted_one_by_one(table), at_once(table)
    check(together, table, tolerance=1e-12)
    np.testing.assert_array_equal(together.codes, one_by_one.codes)
    np.testing.assert_array_equal(together.palette, one_by_one.palette)
    assert together.codes.dtype == one_by_one.codes.dtype


@given(tables(ANY_SCORE), st.data())
def test_a_checkpoint_that_is_taken_out_leaves_the_others(table: FloatArray, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(table) - 1))
    check(without_rows(inserted_one_by_one(table), (position,)), np.delete(table, position, axis=0), tolerance=1e-12)


@given(tables(ANY_SCORE), st.data())
def test_a_checkpoint_that_is_replaced_is_as_if_it_had_been_there_from_the_start(
    table: FloatArray, data: st.DataObject
) -> None:
    position = data.draw(st.integers(0, len(table) - 1))
    row = data.draw(arrays(np.float64, table.shape[1], elements=ANY_SCORE))
    replaced = table.copy()
    replaced[position] = row
    check(inserted(without_rows(inserted_one_by_one(table), (position,)), position, row), replaced, tolerance=1e-12)


@given(tables(ANY_SCORE), st.data())
def test_samples_can_be_put_in_another_order_with_new_ones_between(table: FloatArray, data: st.DataObject) -> None:
    sources = np.array(data.draw(st.permutations([*range(table.shape[1]), -1, -1])))
    wider = np.hstack([table, np.full((len(table), 1), np.nan)])  # -1 is the last column
    check(rearranged(inserted_one_by_one(table), sources), wider[:, sources], tolerance=1e-12)


def test_samples_without_any_score_can_be_left_out() -> None:
    table = np.array([[1.0, math.nan, 0.0], [0.0, math.nan, 1.0]])
    check(rearranged(inserted_one_by_one(table), np.array([2, 0])), table[:, [2, 0]])


@pytest.mark.parametrize(("distinct", "code_bytes"), [(2, 1), (255, 1), (256, 2), (65_535, 2), (65_536, 4)], ids=str)
def test_codes_take_as_many_bytes_as_the_values_need(distinct: int, code_bytes: int) -> None:
    rng = np.random.default_rng(1)
    values = rng.permutation(np.arange(distinct) / 7)
    table = np.vstack([values, rng.permutation(values), np.full(distinct, math.nan)])
    for matrix in (inserted_one_by_one(table), at_once(table)):
        assert matrix.codes.dtype.itemsize == code_bytes
        check(matrix, table, tolerance=1e-12)


@pytest.mark.parametrize("threshold", [255, 65_535])
def test_values_that_no_longer_fit_widen_the_codes_of_all_checkpoints(threshold: int) -> None:
    known = np.arange(threshold, dtype=np.float64)
    new = np.array([-1.0, *known[1:]])  # the lowest of all: every code moves up
    narrow = inserted(empty_matrix(threshold), 0, known)
    wide = inserted(narrow, 0, new)
    assert wide.codes.dtype.itemsize == 2 * narrow.codes.dtype.itemsize
    np.testing.assert_array_equal(values_at(wide, np.array([0, 1])), [new, known])


def test_a_right_or_wrong_score_takes_one_byte() -> None:
    table = (np.random.default_rng(2).random((40, 500)) < 0.6).astype(np.float64)
    assert at_once(table).codes.nbytes == table.size


@pytest.mark.parametrize("largest", [1, 255, 4096, 100_000], ids=str)
def test_whole_numbers_are_exact_in_a_table_wider_than_a_block(largest: int) -> None:
    rng = np.random.default_rng(3)
    table = rng.integers(0, largest, (7, 50_000), endpoint=True).astype(np.float64)
    table[:, 10_000:30_000] = table[0, 10_000:30_000]  # the same at all checkpoints
    table[2, rng.random(50_000) < 0.01] = math.nan
    check(at_once(table), table)
    check(inserted_one_by_one(table), table)


def side_of(table: FloatArray, weights: FloatArray) -> FloatArray:
    """Sum of weight times score of every sample; a missing score is the mean of the others, NaN if half are missing."""
    found = np.zeros(table.shape[1])
    for i, column in enumerate(table.T):
        used = [(w, x) for w, x in zip(weights, column, strict=True) if w != 0 and not math.isnan(x)]
        total, present = sum(abs(w) for w in weights), sum(abs(w) for w, _ in used)
        if total:
            found[i] = total * sum(w * x for w, x in used) / present if present > total / 2 else math.nan
    return found


def test_one_error_in_a_hundred_answers_leaves_nearly_every_sample_comparable() -> None:
    rng = np.random.default_rng(5)
    table = (rng.random((14, 2000)) < 0.6).astype(np.float64)
    table[rng.random(table.shape) < 0.01] = math.nan
    weights = np.concatenate([np.full(10, -0.1), np.full(4, 0.25)])
    (contrast,) = inserted_one_by_one(table).contrasts(weights[np.newaxis])
    assert contrast.common_fraction > 0.99
    expected = np.nanmean(table[10:], axis=0) - np.nanmean(table[:10], axis=0)
    assert contrast.delta == pytest.approx(np.nanmean(expected), abs=2e-3)


@given(tables(ANY_SCORE, max_samples=20), st.data())
def test_differences_and_their_variance_are_what_numpy_finds_on_the_common_samples(
    table: FloatArray, data: st.DataObject
) -> None:
    weights = data.draw(arrays(np.float64, (3, len(table)), elements=st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0])))
    found = inserted_one_by_one(table).contrasts(weights)
    for w, contrast in zip(weights, found, strict=True):
        d = side_of(table, np.maximum(w, 0)) + side_of(table, np.minimum(w, 0))
        common = ~np.isnan(d)
        n = int(common.sum())
        assert contrast.n == n
        assert contrast.common_fraction == pytest.approx(n / table.shape[1])
        d = d[common]
        if n >= 2:
            assert contrast.delta == pytest.approx(d.mean(), abs=1e-9)
            expected = max(float(d.var()), 1e-12) / (n - 1)
            assert contrast.item_variance == pytest.approx(expected, rel=1e-9, abs=1e-9)
        else:
            assert contrast.item_variance == math.inf


def test_a_difference_of_right_and_wrong_has_the_textbook_variance() -> None:
    matrix = inserted_one_by_one(np.array([[1.0, 1.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0]]))
    (contrast,) = matrix.contrasts(np.array([[-1.0, 1.0]]))
    assert contrast.delta == -0.5
    assert contrast.item_variance == pytest.approx(np.array([0, -1, -1, 0]).var(ddof=1) / 4)


def test_means_are_over_the_samples_with_a_score() -> None:
    matrix = inserted_one_by_one(np.array([[1.0, 0.0, math.nan], [math.nan] * 3]))
    np.testing.assert_array_equal(matrix.means, [0.5, math.nan])


def test_a_matrix_never_changes() -> None:
    matrix = inserted_one_by_one(np.array([[1.0, 0.0], [0.5, 1.0]]))
    before = [array.copy() for array in (matrix.codes, matrix.palette, matrix.sums, matrix.missing)]
    inserted(matrix, 0, np.array([0.25, math.nan]))
    without_rows(matrix, (0,))
    rearranged(matrix, np.array([1, 0, -1]))
    for array, copy in zip((matrix.codes, matrix.palette, matrix.sums, matrix.missing), before, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize(
    ("base", "new", "lost", "gained"),
    [
        ([[1]], [[0]], 1, 0),
        ([[1], [1], [0]], [[0]], 0, 0),  # right at most checkpoints, and at fewer than 80 %
        ([[1], [1], [1], [1], [0]], [[0], [0], [0], [1], [0]], 1, 0),
        ([[1], [0]], [[0]], 0, 0),
        ([[1]], [[0], [1]], 0, 0),
        ([[0], [0], [0], [1], [0]], [[1]], 0, 1),
        ([[0.6], [0.6], [0.6], [0.6], [0.0]], [[0.4]], 1, 0),  # right at 80 % of them, with a mean of .48
        ([[math.nan], [math.nan], [1]], [[0]], 0, 0),
    ],
)
def test_a_sample_is_lost_that_was_right_at_80_percent_of_checkpoints_and_is_at_20_or_less(
    base: list[list[float]], new: list[list[float]], lost: int, gained: int
) -> None:
    matrix = inserted_one_by_one(np.array([*base, *new], dtype=np.float64))
    rows = np.arange(len(base) + len(new))
    assert flips(matrix, rows[len(base) :], rows[: len(base)]).counts() == (lost, gained)
