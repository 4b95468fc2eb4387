"""What repeating an evaluation changes is a floor under every standard error, and never makes a test more certain."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.tracker.domain.regression.tables import evidence_at, flipping, matrix_of, track_of
from tracker.domain.regression.budget import ONE_SIZE
from tracker.domain.regression.detector import ErrorBudget, Evidence
from tracker.domain.regression.subsets import subset_evidence
from tracker.domain.scores.grouping import grouping_of
from tracker.domain.scores.matrix import FloatArray

LEVEL = ErrorBudget(alpha=0.05, planned=20, benchmarks=1)
EFFECT = 0.01

seeds = st.integers(0, 10_000)
variances = st.floats(0.0, 0.25)


def found_in(table: FloatArray, decoding: float) -> tuple[Evidence, ...]:
    (found,) = evidence_at([replace(track_of(table), decoding=decoding)], LEVEL)
    return found


def constant_then(lost: int, n: int = 200, checkpoints: int = 12) -> FloatArray:
    """Every sample is right until the newest checkpoint loses some."""
    table = np.ones((checkpoints, n))
    table[-1, :lost] = 0.0
    return table


@given(seeds, st.integers(3, 24))
def test_without_a_calibration_nothing_changes(seed: int, checkpoints: int) -> None:
    table = flipping(seed, checkpoints, n=60)
    (plain,) = evidence_at([track_of(table)], LEVEL)
    assert [e.test for e in found_in(table, 0.0)] == [e.test for e in plain]


@given(seeds, st.integers(3, 24), variances)
def test_a_test_is_never_more_certain_than_without_the_floor(seed: int, checkpoints: int, decoding: float) -> None:
    """Also far out in the tail, where a larger variance with more degrees of freedom could be."""
    table = flipping(seed, checkpoints, n=60)
    table[-1, : 10 + seed % 40] = 0.0
    for plain, floored in zip(found_in(table, 0.0), found_in(table, decoding), strict=True):
        assert floored.test.stderr >= plain.test.stderr
        assert floored.test.df == plain.test.df
        if plain.test.delta <= 0:
            assert floored.p_worse >= plain.p_worse
        else:
            assert floored.p_better >= plain.p_better
        assert plain.test.equivalence_p(EFFECT) < 0.05 or floored.test.equivalence_p(EFFECT) >= 0.05
        assert not (floored.is_loss(EFFECT) and not plain.is_loss(EFFECT))
        assert not (floored.is_gain(EFFECT) and not plain.is_gain(EFFECT))


@pytest.mark.parametrize("decoding", [0.01, 0.05, 0.2])
def test_the_floor_is_that_of_as_many_evaluations_as_were_compared(decoding: float) -> None:
    for e in found_in(constant_then(0), decoding):
        share = 1 / e.m + 1 / e.blocks.base.size
        assert e.test.variance == pytest.approx((decoding / 200 + e.jitter.tau2) * share)


def test_a_loss_that_decoding_explains_is_no_finding_and_a_larger_one_is() -> None:
    small, large = constant_then(20), constant_then(100)
    assert any(e.is_loss(EFFECT) for e in found_in(small, 0.0))
    # 40 % of the samples flip when the evaluation is repeated: the mean of 200 is off by 3 points.
    assert not any(e.is_loss(EFFECT) for e in found_in(small, 0.2))
    assert any(e.is_loss(EFFECT) for e in found_in(large, 0.2))


def test_samples_that_flip_by_themselves_are_not_counted_twice() -> None:
    """A model that is asked again and again, a fifth of the samples at random: the samples show all of it already."""
    rng = np.random.default_rng(5)
    chance = np.where(rng.random(400) < 0.2, 0.5, 1.0)
    table = (rng.random((25, 400)) < chance).astype(np.float64)
    decoding = float((chance * (1 - chance)).mean())
    for plain, floored in zip(found_in(table, 0.0), found_in(table, decoding), strict=True):
        assert floored.test.stderr == pytest.approx(plain.test.stderr, rel=0.1)


def test_a_subset_has_the_floor_of_its_own_samples() -> None:
    table = np.ones((12, 120))
    table[-4:, :14] = 0.0
    level = ErrorBudget(alpha=0.05, planned=20, benchmarks=1, design=ONE_SIZE)
    grouping = grouping_of([f"subject {i // 20}" for i in range(120)])

    def found(decoding: float) -> list[Evidence]:
        track = replace(track_of(table), decoding=decoding)
        by_name = subset_evidence(matrix_of(table), track, grouping, level, ("subject 0", "subject 5"))
        assert set(by_name) == {"subject 0", "subject 5"}
        return [e for tests in by_name.values() for e in tests]

    decoding = 0.25
    for plain, floored in zip(found(0.0), found(decoding), strict=True):
        one, other = plain.test, floored.test
        assert (other.delta, other.item_stderr, other.df) == (one.delta, one.item_stderr, one.df)
        jitter = one.stderr**2 - one.item_stderr**2
        least = decoding * (1 / 4 + 1 / plain.blocks.base.size) / 20
        assert other.stderr**2 == pytest.approx(max(one.item_stderr**2, least) + jitter)
