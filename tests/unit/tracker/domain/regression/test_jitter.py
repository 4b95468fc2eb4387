"""What is estimated from a run as its training jitter."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.domain.regression.blocks import second_difference_weights
from tracker.domain.regression.jitter import (
    MIN_HISTORY,
    PERSISTENCES,
    SIZES,
    TAU_MAX,
    TAU_MIN,
    WINDOW,
    Jitter,
    SecondDifferences,
    estimate_jitter,
    persistent_shares,
)
from tracker.domain.scores.matrix import FloatArray

History = list[SecondDifferences]

deltas = st.lists(st.floats(-0.2, 0.2, allow_subnormal=False), min_size=0, max_size=60)


def history(deltas: FloatArray, item_variance: float = 1e-5) -> History:
    return [SecondDifferences(deltas=deltas, item_variances=np.full(deltas.size, item_variance))]


def moving(seed: int, tau: float, h: int = 40, item_variance: float = 1e-5, r: float = 0.0) -> History:
    """Second differences of a score that moves by `tau` beside what its samples do."""
    rng = np.random.default_rng(seed)
    y = np.zeros(h + 2)
    for t in range(y.size):
        y[t] = r * y[t - 1] * (t > 0) + rng.normal(0, tau * math.sqrt(1 - r * r * (t > 0)))
    y += rng.normal(0, math.sqrt(item_variance / 6), y.size)
    found = []
    for size in SIZES:
        c = second_difference_weights(np.arange(y.size), y, y.size, size) @ y
        found.append(SecondDifferences(deltas=c, item_variances=np.full(c.size, item_variance / size), size=size))
    return found


def tau_of(jitter: Jitter) -> float:
    return math.sqrt(jitter.tau2)


def mean_r(jitters: Sequence[Jitter]) -> float:
    return sum(p.r * p.probability for p in jitters[0].persistent)


@pytest.mark.parametrize("h", range(MIN_HISTORY))
def test_before_a_run_has_shown_anything_some_tenths_of_a_point_are_assumed(h: int) -> None:
    (jitter,) = estimate_jitter([history(np.full(h, 0.5))])
    assert jitter == estimate_jitter([[]])[0]
    assert 0.004 < tau_of(jitter) < 0.01


def test_no_benchmarks_have_no_jitter() -> None:
    assert estimate_jitter([]) == ()


@pytest.mark.parametrize("tau", [0.002, 0.01, 0.03])
def test_a_score_that_moves_is_told_from_samples_that_flip(tau: float) -> None:
    found = [estimate_jitter([moving(seed, tau, item_variance=1e-6)])[0].tau2 for seed in range(40)]
    assert math.sqrt(np.mean(found)) == pytest.approx(tau, rel=0.3)


def test_a_constant_history_has_hardly_any() -> None:
    (jitter,) = estimate_jitter([history(np.zeros(60), 0.0)])
    assert TAU_MIN <= tau_of(jitter) < 2 * TAU_MIN


def test_a_score_that_jumps_about_has_the_largest_and_not_more() -> None:
    (jitter,) = estimate_jitter([history(np.tile([2.0, -2.0], 20))])
    assert tau_of(jitter) == pytest.approx(TAU_MAX, rel=0.01)


def test_flips_of_samples_alone_are_not_taken_for_jitter() -> None:
    (jitter,) = estimate_jitter([moving(1, 0.0, item_variance=1e-4)])
    assert tau_of(jitter) < 0.005


def test_only_the_newest_second_differences_count() -> None:
    (newest,) = history(moving(3, 0.01, WINDOW)[0].deltas)
    wild = np.concatenate([np.full(30, 0.5), newest.deltas])
    assert estimate_jitter([history(wild)]) == estimate_jitter([[newest]])


def test_one_planted_loss_is_not_taken_for_noise() -> None:
    quiet = moving(5, 0.003, 20)[0].deltas
    with_loss = np.concatenate([quiet, [-0.3, 0.3]])
    one, other = estimate_jitter([history(quiet)])[0], estimate_jitter([history(with_loss)])[0]
    assert tau_of(other) < 3 * tau_of(one)
    assert math.sqrt(np.mean(with_loss**2) / 6) > 10 * tau_of(one)


def test_a_short_history_leans_on_the_other_benchmarks() -> None:
    short = moving(20, 0.004, 4)
    quiet, alone, noisy = (
        tau_of(estimate_jitter([short, *(moving(seed, tau) for seed in range(n))])[0])
        for n, tau in ((8, 0.001), (0, 0.0), (8, 0.02))
    )
    assert quiet < 0.8 * alone
    assert noisy > 1.5 * alone


def test_no_benchmark_is_believed_to_be_quieter_than_its_own_past_shows() -> None:
    quiet, loud = [moving(seed, 0.0015) for seed in range(9)], moving(9, 0.02)
    *others, own = estimate_jitter([*quiet, loud])
    assert tau_of(own) > 0.9 * tau_of(estimate_jitter([loud])[0]) > 0.015
    assert max(map(tau_of, others)) < 0.003


def test_what_persists_from_checkpoint_to_checkpoint_is_told_from_what_does_not() -> None:
    calm = mean_r(estimate_jitter([moving(seed, 0.008) for seed in range(10)]))
    wandering = mean_r(estimate_jitter([moving(seed, 0.008, r=0.8) for seed in range(10)]))
    assert calm < 0.15
    assert wandering > 0.6


def test_a_wandering_score_is_off_for_longer() -> None:
    (jitter,) = estimate_jitter([moving(3, 0.008, r=0.8)])
    new, both = np.array([0.25] * 4), np.array([0.25] * 4 + [-0.1] * 10)
    places = np.concatenate([np.arange(10, 14), np.arange(10)])
    for weights, at in ((new, places[:4]), (both, places)):
        shares = persistent_shares(weights, at)
        assert shares[0] == pytest.approx((weights**2).sum())
        correlation = 0.8 ** np.abs(at[:, np.newaxis] - at)
        assert shares[PERSISTENCES.index(0.8)] == pytest.approx(weights @ correlation @ weights)
        assert jitter.of_contrast(shares)[0] > 1.5 * jitter.tau2 * shares[0]


def test_triples_without_common_samples_count_for_nothing() -> None:
    """A benchmark of one sample has no variance to learn from, and must not silence the others."""
    known = moving(2, 0.01, 20)
    blind = [SecondDifferences(deltas=np.zeros(20), item_variances=np.full(20, np.inf))]
    together = estimate_jitter([known, blind])
    assert together[0].tau2 == pytest.approx(estimate_jitter([known])[0].tau2)
    assert together == estimate_jitter([known, []])


@given(st.lists(deltas, min_size=1, max_size=5))
def test_an_estimate_is_positive_and_its_error_known(many: list[list[float]]) -> None:
    for jitter in estimate_jitter([history(np.array(d)) for d in many]):
        assert TAU_MIN**2 <= jitter.tau2 <= TAU_MAX**2
        assert 0 <= jitter.variance < 1
        assert sum(p.probability for p in jitter.persistent) == pytest.approx(1)


@given(st.lists(deltas, min_size=2, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_benchmarks_does_not_matter(many: list[list[float]], random: object) -> None:
    order = list(range(len(many)))
    random.shuffle(order)  # type: ignore[attr-defined]
    plain = estimate_jitter([history(np.array(d)) for d in many])
    shuffled = estimate_jitter([history(np.array(many[i])) for i in order])
    for at, i in enumerate(order):
        assert shuffled[at].tau2 == pytest.approx(plain[i].tau2, rel=1e-9)


@given(deltas)
def test_losses_and_gains_are_the_same_noise(d: list[float]) -> None:
    assert estimate_jitter([history(np.array(d))]) == estimate_jitter([history(-np.array(d))])


def test_what_parts_show_counts_by_what_they_can_show() -> None:
    """A tenth of the samples knows little of the jitter: it must not blur what the whole has shown."""
    doubts = []
    for seed in range(20):
        whole, part = moving(seed, 0.003, 20, 1e-5), moving(seed + 1000, 0.003, 12, 1e-4)
        alone, both = estimate_jitter([whole])[0], estimate_jitter([[*whole, *part]])[0]
        doubts.append([alone.variance / alone.tau2**2, both.variance / both.tau2**2])
    of_whole, of_both = np.mean(doubts, axis=0)
    assert of_both < 1.2 * of_whole


def test_what_contradicts_everything_that_was_shown_is_impossible_and_not_undefined() -> None:
    quiet = [moving(seed, 0.0005, item_variance=1e-9) for seed in range(50)]
    for jitter in estimate_jitter([*quiet, history(np.tile([0.3, -0.3], 20), 1e-9)]):
        assert all(math.isfinite(value) for p in jitter.persistent for value in (p.probability, p.tau2, p.tau4))
