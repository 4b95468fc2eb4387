"""All tests of one checkpoint."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.tracker.domain.regression.tables import evidence_at, flipping, matrix_of, track_of
from tracker.domain.records.types import Baseline
from tracker.domain.regression.detector import ErrorBudget, Evidence, Track, evidence_of, jitter_of
from tracker.domain.regression.jitter import Jitter
from tracker.domain.scores.matrix import FloatArray, empty_matrix, inserted

LEVEL = ErrorBudget(alpha=0.05, planned=50, benchmarks=2)
EFFECT = 0.01

seeds = st.integers(0, 10_000)
lengths = st.integers(3, 32)


def found_in(table: FloatArray) -> tuple[Evidence, ...]:
    (found,) = evidence_at([track_of(table)], LEVEL)
    return found


def numbers(tests: tuple[Evidence, ...]) -> list[tuple[float, ...]]:
    return [(e.test.delta, e.test.stderr, e.test.df, e.p_worse, e.p_better) for e in tests]


@pytest.mark.parametrize("checkpoints", [0, 1])
def test_nothing_is_said_before_the_second_checkpoint(checkpoints: int) -> None:
    assert found_in(np.ones((checkpoints, 5))) == ()


def test_the_newest_one_two_four_and_eight_are_compared_with_recent_and_peak() -> None:
    found = found_in(flipping(0, 40))
    assert [(e.m, e.blocks.baseline) for e in found] == [
        (m, baseline) for m in (1, 2, 4, 8) for baseline in (Baseline.RECENT, Baseline.PEAK)
    ]
    assert [e.alpha_test for e in found] == [LEVEL.alpha_test(39, e.m, e.blocks.baseline) for e in found]


@given(st.integers(0, 40), st.sampled_from([0.0, 0.5, 1.0]), st.integers(1, 30))
def test_a_constant_history_shows_nothing(checkpoints: int, score: float, n: int) -> None:
    for e in found_in(np.full((checkpoints, n), score)):
        assert not e.is_loss(0.0)
        assert not e.is_gain(0.0)
        assert (e.test.delta, e.test.p_worse()) == pytest.approx((0.0, 0.5))


@given(seeds, lengths)
def test_swapping_right_and_wrong_swaps_losses_and_gains(seed: int, checkpoints: int) -> None:
    """Against the recent block: the peak is by design not the mirror of the deepest valley."""
    table = flipping(seed, checkpoints, n=40)
    one, other = ([e for e in found_in(t) if e.blocks.baseline is Baseline.RECENT] for t in (table, 1 - table))
    for a, b in zip(one, other, strict=True):
        assert a.test.delta == pytest.approx(-b.test.delta, rel=1e-9, abs=1e-12)
        assert a.test.stderr == pytest.approx(b.test.stderr, rel=1e-6)
        assert a.p_worse == pytest.approx(b.p_better, rel=1e-6)
        assert a.is_loss(EFFECT) == b.is_gain(EFFECT)


@given(seeds, lengths)
def test_the_order_of_samples_does_not_matter(seed: int, checkpoints: int) -> None:
    table = flipping(seed, checkpoints, n=40)
    order = np.random.default_rng(seed).permutation(40)
    for a, b in zip(numbers(found_in(table)), numbers(found_in(table[:, order])), strict=True):
        assert a == pytest.approx(b, rel=1e-9, abs=1e-15)


@given(seeds, lengths, st.data())
def test_one_more_lost_sample_never_makes_the_difference_better(
    seed: int, checkpoints: int, data: st.DataObject
) -> None:
    table = flipping(seed, checkpoints, n=40)
    right = np.flatnonzero(table[-1])
    if right.size:
        worse = table.copy()
        worse[-1, data.draw(st.sampled_from(right.tolist()))] = 0.0
        for a, b in zip(found_in(worse), found_in(table), strict=True):
            assert a.test.delta < b.test.delta


@given(seeds, st.integers(1, 39))
def test_losing_samples_that_were_always_right_is_ever_stronger_evidence(seed: int, most: int) -> None:
    """Held at one jitter: the same number of lost samples is judged by the same noise."""
    table = flipping(seed, 12, n=120)
    table[:, :40] = 1.0
    (jitter,) = jitter_of([track_of(table)])
    p = []
    for lost in (0, most // 2, most):
        worse = table.copy()
        worse[-1, :lost] = 0.0
        p.append([e.p_worse for e in evidence_of(track_of(worse), jitter, LEVEL)])
    for weaker, stronger in pairwise(p):
        assert all(s <= w for s, w in zip(stronger, weaker, strict=True))


@given(seeds, st.integers(3, 24))
def test_checkpoints_inserted_in_any_order_give_the_same_tests(seed: int, checkpoints: int) -> None:
    table = flipping(seed, checkpoints, n=30)
    table[np.random.default_rng(seed).random(table.shape) < 0.005] = np.nan
    there: list[int] = []
    matrix = empty_matrix(30)
    for t in np.random.default_rng(seed + 1).permutation(checkpoints).tolist():
        position = sum(s < t for s in there)
        matrix = inserted(matrix, position, table[t])
        there.append(t)
    (found,) = evidence_at([Track(scores=matrix, rows=np.arange(checkpoints))], LEVEL)
    for a, b in zip(numbers(found), numbers(found_in(table)), strict=True):
        assert a == pytest.approx(b, rel=1e-9, abs=1e-15)


def test_a_loss_needs_both_chance_and_size() -> None:
    table = np.tile(flipping(1, 1, n=400), (25, 1))
    table[-1, np.flatnonzero(table[-1])[:40]] = 0.0
    alone = found_in(table)[0]
    assert alone.is_loss(0.05)
    assert not alone.is_loss(0.11)
    assert not replace(alone, alpha_test=alone.p_worse).is_loss(0.05)


def test_jitter_history_starts_where_training_changed_its_ways() -> None:
    wild, calm = flipping(2, 12, flips=1.0, n=20), np.tile(flipping(3, 1, n=20), (8, 1))
    track = track_of(np.concatenate([wild, calm]))
    whole, since = jitter_of([track])[0], jitter_of([replace(track, noise_from=12)])[0]
    assert since == jitter_of([track_of(calm)])[0]
    assert whole != since
    too_new = jitter_of([replace(track, noise_from=17)])[0]
    assert too_new == jitter_of([track_of(np.zeros((2, 20)))])[0]


def test_dropped_checkpoints_have_spent_their_share() -> None:
    level = ErrorBudget(alpha=0.05, planned=None, benchmarks=1)
    track = track_of(flipping(4, 30))
    noise = Jitter(tau2=1e-5, variance=1e-10)
    early, late = (evidence_of(replace(track, dropped=d), noise, level)[0].alpha_test for d in (0, 71))
    assert early == level.alpha_test(29, 1, Baseline.RECENT)
    assert late == pytest.approx(early / 4)
    assert evidence_of(replace(track, dropped=71).before(1), noise, level)[0].alpha_test == early


def test_the_past_is_seen_as_it_was() -> None:
    table = flipping(5, 25)
    noise = Jitter(tau2=1e-5, variance=1e-10)
    back, then = track_of(table).before(3), track_of(table[:22])
    for a, b in zip(numbers(evidence_of(back, noise, LEVEL)), numbers(evidence_of(then, noise, LEVEL)), strict=True):
        assert a == pytest.approx(b, rel=1e-9, abs=1e-12)


def test_a_pinned_model_is_a_third_baseline_from_the_first_checkpoint_on() -> None:
    table = flipping(6, 5)
    matrix = inserted(matrix_of(table), 5, np.ones(200))
    noise = Jitter(tau2=1e-5, variance=1e-10)
    for t in range(1, 6):
        track = Track(scores=matrix, rows=np.arange(t), pinned_row=5)
        found = [e for e in evidence_of(track, noise, LEVEL) if e.blocks.baseline is Baseline.PINNED]
        assert [e.m for e in found] == [m for m in (1, 2, 4) if m <= t]
        assert found[0].test.delta == pytest.approx(table[t - 1].mean() - 1.0)
        others = [e for e in evidence_of(track, noise, LEVEL) if e.blocks.baseline is not Baseline.PINNED]
        plain = evidence_of(replace(track, pinned_row=None), noise, LEVEL)
        for a, b in zip(numbers(tuple(others)), numbers(plain), strict=True):
            assert a == pytest.approx(b, rel=1e-9, abs=1e-12)
