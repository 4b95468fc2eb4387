"""Losses of single subsets, against plain arithmetic and by their properties."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.tracker.domain.regression.tables import flipping, matrix_of, track_of
from tracker.domain.records.types import Baseline
from tracker.domain.regression.budget import ONE_SIZE
from tracker.domain.regression.detector import ErrorBudget, Evidence
from tracker.domain.regression.subsets import MIN_SAMPLES, subset_evidence
from tracker.domain.scores.grouping import grouping_of
from tracker.domain.scores.matrix import FloatArray

LEVEL = ErrorBudget(alpha=0.05, planned=50, benchmarks=1, design=ONE_SIZE)


def in_subsets(count: int, size: int) -> list[str]:
    return [f"subject {i // size}" for i in range(count * size)]


def found_in(table: FloatArray, subsets: list[str], followed: tuple[str, ...] = ()) -> dict[str, tuple[Evidence, ...]]:
    track = track_of(table)
    return dict(subset_evidence(matrix_of(table), track, grouping_of(subsets), LEVEL, followed))


def losing(table: FloatArray, columns: slice, newest: int, share: float = 0.4) -> FloatArray:
    """Some of the samples are wrong at the newest checkpoints."""
    lost = table.copy()
    size = columns.stop - columns.start
    lost[-newest:, columns.start : columns.start + round(size * share)] = 0.0
    return lost


def test_subsets_are_numbered_as_they_appear() -> None:
    grouping = grouping_of(["b", "a", "b", "c"])
    assert (grouping.names, grouping.index.tolist()) == (("b", "a", "c"), [0, 1, 0, 2])


def test_one_subject_that_loses_is_found_and_named_and_the_others_are_silent() -> None:
    table = losing(flipping(1, 20, n=600, ability=0.8), slice(60, 90), 4, share=0.9)
    found = found_in(table, in_subsets(20, 30))
    assert set(found) == {"subject 2"}
    worst = min(found["subject 2"], key=lambda e: e.p_worse)
    assert worst.is_loss(0.05)
    assert worst.test.delta == pytest.approx(
        table[16:, 60:90].mean() - table[worst.blocks.base][:, 60:90].mean(), abs=1e-9
    )
    assert worst.alpha_test == pytest.approx(0.05 / (50 * 1 * 2 * 1) / 20)


def test_the_newest_four_are_tested_against_recent_and_peak() -> None:
    found = found_in(flipping(2, 30, n=60), in_subsets(2, 30), followed=("subject 0", "subject 1"))
    for tests in found.values():
        assert [(e.m, e.blocks.baseline) for e in tests] == [(4, Baseline.RECENT), (4, Baseline.PEAK)]


def test_a_followed_subset_is_always_tested() -> None:
    table = flipping(3, 20, n=60)
    assert found_in(table, in_subsets(2, 30)) == {}
    assert set(found_in(table, in_subsets(2, 30), followed=("subject 1",))) == {"subject 1"}


def test_subsets_of_few_samples_are_left_to_the_benchmark() -> None:
    table = flipping(4, 20, n=30 + MIN_SAMPLES - 1)
    subsets = ["large"] * 30 + ["small"] * (MIN_SAMPLES - 1)
    assert set(found_in(table, subsets, followed=("large", "small"))) == {"large"}


@pytest.mark.parametrize("checkpoints", [1, 3, 4])
def test_nothing_is_said_before_one_earlier_checkpoint_and_four_new_ones(checkpoints: int) -> None:
    assert found_in(flipping(5, checkpoints, n=60), in_subsets(2, 30), followed=("subject 0",)) == {}


def test_a_benchmark_in_one_piece_has_no_subsets() -> None:
    assert found_in(flipping(6, 20, n=30), in_subsets(1, 30), followed=("subject 0",)) == {}


def test_a_handful_of_samples_that_move_alike_are_no_certainty() -> None:
    """Five of five lost have no spread of their own: the benchmark's is lent to them."""
    table = flipping(7, 20, n=605, ability=0.6, flips=0.2)
    table[:, 600:] = 1.0
    table[-4:, 600:] = 0.0
    tests = found_in(table, [*in_subsets(20, 30), *["tiny"] * 5], followed=("tiny",))["tiny"]
    assert tests[0].test.delta == -1.0
    assert tests[0].test.item_stderr > 0.05
    assert tests[0].p_worse > 1e-12


def test_the_error_of_a_subset_is_what_plain_arithmetic_says() -> None:
    table = flipping(8, 12, n=100)
    tests = found_in(table, in_subsets(4, 25), followed=("subject 3",))["subject 3"]
    d = table[8:].mean(axis=0) - table[:8].mean(axis=0)
    own = d[75:]
    variance = (20 * d.var() + 25 * own.var()) / 45 / 25
    e = tests[0]
    assert (e.test.delta, e.test.item_stderr) == pytest.approx((own.mean(), math.sqrt(variance)))
    assert e.test.stderr == pytest.approx(math.sqrt(variance + e.jitter.tau2 * (1 / 4 + 1 / 8)))
    assert (e.test.df, e.test.n, e.test.common_fraction) == (45, 25, 1.0)


def test_samples_without_a_score_are_dropped_on_both_sides() -> None:
    table = flipping(9, 12, n=100)
    table[3, 75:80] = np.nan
    test = found_in(table, in_subsets(4, 25), followed=("subject 3",))["subject 3"][0].test
    assert (test.n, test.common_fraction) == (20, 0.8)


def test_subjects_that_wander_apart_raise_the_jitter_of_subsets() -> None:
    calm = flipping(10, 30, n=600, flips=0.02)
    rng = np.random.default_rng(10)
    wild = calm.copy()
    for row in wild:
        for subject in range(20):
            if rng.random() < 0.5:
                row[30 * subject : 30 * subject + 10] = 0.0
    subsets = in_subsets(20, 30)
    one, other = (found_in(t, subsets, followed=("subject 0",))["subject 0"][0].jitter.tau2 for t in (calm, wild))
    assert other > 4 * one


@given(st.integers(0, 10_000))
def test_healthy_subjects_are_silent_and_the_order_of_samples_does_not_matter(seed: int) -> None:
    table, subsets = flipping(seed, 16, n=300), in_subsets(10, 30)
    everything = tuple(dict.fromkeys(subsets))
    found = found_in(table, subsets, everything)
    assert not any(e.is_loss(0.05) for tests in found.values() for e in tests)
    order = np.random.default_rng(seed).permutation(300)
    shuffled = found_in(table[:, order], [subsets[i] for i in order], everything)
    for name, tests in found.items():
        for a, b in zip(tests, shuffled[name], strict=True):
            assert (a.test.delta, a.test.stderr, a.p_worse) == pytest.approx((b.test.delta, b.test.stderr, b.p_worse))
