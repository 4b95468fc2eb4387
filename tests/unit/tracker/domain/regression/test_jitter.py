"""What is estimated from a run as its training jitter."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.domain.regression.jitter import MIN_HISTORY, TAU_START, WINDOW, SecondDifferences, estimate_jitter
from tracker.domain.scores.matrix import FloatArray

FLOOR = 0.0015

deltas = st.lists(st.floats(-0.2, 0.2, allow_subnormal=False), min_size=0, max_size=60)


def history(deltas: FloatArray, item_variance: float = 1e-5) -> SecondDifferences:
    return SecondDifferences(deltas=deltas, item_variances=np.full(deltas.size, item_variance))


def moving(seed: int, tau: float, h: int = 200, item_variance: float = 1e-5) -> SecondDifferences:
    """Second differences of a score that moves by `tau` beside what its samples do."""
    rng = np.random.default_rng(seed)
    y = rng.normal(0, tau, h + 2) + rng.normal(0, math.sqrt(item_variance / 6), h + 2)
    return history(np.diff(y, n=2), item_variance)


@pytest.mark.parametrize("h", range(MIN_HISTORY))
def test_before_a_run_has_shown_anything_the_starting_value_counts(h: int) -> None:
    (jitter,) = estimate_jitter([history(np.full(h, 0.5))])
    assert jitter.tau2 == pytest.approx(TAU_START**2)
    assert jitter.variance == pytest.approx(3 * TAU_START**4)


def test_no_benchmarks_have_no_jitter() -> None:
    assert estimate_jitter([]) == ()


@pytest.mark.parametrize("tau", [0.005, 0.01, 0.03])
def test_a_score_that_moves_is_told_from_samples_that_flip(tau: float) -> None:
    found = [estimate_jitter([moving(seed, tau)])[0].tau2 for seed in range(40)]
    assert math.sqrt(np.mean(found)) == pytest.approx(tau, rel=0.3)


def test_a_constant_history_is_held_at_the_floor() -> None:
    (jitter,) = estimate_jitter([history(np.zeros(60), 0.0)])
    assert jitter.tau2 >= FLOOR**2
    assert math.sqrt(jitter.tau2) < TAU_START


def test_flips_of_samples_alone_are_not_taken_for_jitter() -> None:
    (jitter,) = estimate_jitter([moving(1, 0.0, item_variance=1e-4)])
    assert math.sqrt(jitter.tau2) < 0.005


def test_only_the_newest_second_differences_count() -> None:
    newest = moving(3, 0.01, WINDOW)
    wild = np.concatenate([np.full(30, 0.5), newest.deltas])
    assert estimate_jitter([history(wild)]) == estimate_jitter([newest])


def test_one_planted_loss_is_not_taken_for_noise() -> None:
    quiet = moving(5, 0.003, 20)
    with_loss = history(np.concatenate([quiet.deltas, [-0.3, 0.3]]))
    one, other = estimate_jitter([quiet])[0], estimate_jitter([with_loss])[0]
    assert math.sqrt(other.tau2) < 4 * math.sqrt(one.tau2)
    assert math.sqrt(np.mean(with_loss.deltas**2) / 6) > 10 * math.sqrt(one.tau2)


def test_a_short_history_leans_on_the_other_benchmarks() -> None:
    others = [moving(seed, 0.02, 40) for seed in range(8)]
    short = [moving(seed, 0.008, 3) for seed in range(20, 40)]
    alone = np.mean([estimate_jitter([s])[0].tau2 for s in short])
    among_noisy = np.mean([estimate_jitter([s, *others])[0].tau2 for s in short])
    assert among_noisy > 1.05 * alone


def test_triples_without_common_samples_count_for_nothing() -> None:
    """A benchmark of one sample has no variance to learn from, and must not silence the others."""
    known = moving(2, 0.01, 20)
    blind = SecondDifferences(deltas=np.zeros(20), item_variances=np.full(20, np.inf))
    together = estimate_jitter([known, blind])
    assert together[0] == estimate_jitter([known])[0]
    assert together[1].tau2 == pytest.approx(TAU_START**2)


@given(st.lists(deltas, min_size=1, max_size=5))
def test_an_estimate_is_positive_and_its_error_known(many: list[list[float]]) -> None:
    for jitter in estimate_jitter([history(np.array(d)) for d in many]):
        assert FLOOR**2 <= jitter.tau2 < 0.1
        assert 0 <= jitter.variance < 1


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


def test_what_parts_show_counts_by_what_they_can_show_and_not_by_what_they_happen_to() -> None:
    """A tenth of the samples knows little of the jitter: it must not blur what the whole has shown."""
    doubts = []
    for seed in range(100):
        whole, part = moving(seed, 0.003, 20, 1e-5), moving(seed + 1000, 0.003, 12, 1e-4)
        alone, both = estimate_jitter([whole])[0], estimate_jitter([replace(whole, of_parts=part)])[0]
        doubts.append([alone.variance / alone.tau2**2, both.variance / both.tau2**2])
    of_whole, of_both = np.mean(doubts, axis=0)
    assert of_both < 1.5 * of_whole


def test_parts_that_know_as_much_count_as_much() -> None:
    once = moving(4, 0.005, 40)
    older = SecondDifferences(deltas=once.deltas[:20], item_variances=once.item_variances[:20])
    newer = SecondDifferences(deltas=once.deltas[20:], item_variances=once.item_variances[20:])
    one, two = estimate_jitter([once])[0], estimate_jitter([replace(newer, of_parts=older)])[0]
    assert two.tau2 == pytest.approx(one.tau2, rel=0.03)
