"""The test of two blocks of checkpoints, by the properties that it must have."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tracker.domain.regression.jitter import Jitter
from tracker.domain.regression.pooled_test import PooledTest, independent, pooled_test
from tracker.domain.scores.matrix import Contrast

NOISE = Jitter(tau2=9e-6, variance=1e-10)
KNOWN = Jitter(tau2=9e-6, variance=0.0)

deltas = st.floats(-0.5, 0.5, allow_subnormal=False)
variances = st.floats(1e-8, 1e-2)


def a_test(delta: float, variance: float = 1e-4, noise: Jitter = NOISE, m: float = 1, width: float = 10) -> PooledTest:
    contrast = Contrast(delta=delta, item_variance=variance, n=500, common_fraction=1.0)
    return pooled_test(contrast, noise, independent(m, width))


@given(deltas, variances)
def test_losses_and_gains_mirror_each_other(delta: float, variance: float) -> None:
    one, other = a_test(delta, variance), a_test(-delta, variance)
    assert one.p_worse() == other.p_better()
    assert one.p_worse() + one.p_better() == pytest.approx(1)
    assert one.equivalence_p(0.01) == pytest.approx(other.equivalence_p(0.01))
    assert one.interval()[0] == pytest.approx(-other.interval()[1])
    assert one.mde(1e-5) == other.mde(1e-5)


@given(deltas, st.floats(0, 0.5), variances)
def test_a_larger_loss_is_never_weaker_evidence(delta: float, more: float, variance: float) -> None:
    assert a_test(delta - more, variance).p_worse() <= a_test(delta, variance).p_worse()


@given(deltas, variances)
def test_jitter_always_weakens_what_the_samples_say(delta: float, variance: float) -> None:
    test = a_test(-abs(delta), variance)
    assert test.stderr > test.item_stderr == math.sqrt(variance)
    assert test.p_worse() >= a_test(-abs(delta), variance, Jitter(tau2=1e-12, variance=0.0)).p_worse()


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([2, 5, 10]))
def test_pooling_averages_the_jitter_of_both_sides(m: int, width: int) -> None:
    test = a_test(-0.01, 0.0, KNOWN, m, width)
    assert test.stderr == pytest.approx(math.sqrt(9e-6 * (1 / m + 1 / width)))


def test_a_fixed_number_brings_no_jitter_of_its_own() -> None:
    assert a_test(-0.01, 0.0, KNOWN, 4, math.inf).stderr == pytest.approx(math.sqrt(9e-6 / 4))


def test_a_poorly_known_jitter_has_heavy_tails() -> None:
    sure, unsure = a_test(-0.06, noise=NOISE), a_test(-0.06, noise=Jitter(tau2=9e-6, variance=1e-8))
    assert unsure.df < sure.df
    assert unsure.p_worse() > sure.p_worse()
    assert a_test(-0.06, 1e-9, Jitter(tau2=9e-6, variance=1.0)).df == pytest.approx(4)


def test_the_choice_of_the_baseline_is_paid_for_and_never_more_than_a_certainty() -> None:
    test = a_test(-0.03)
    assert test.p_worse(7) == pytest.approx(7 * test.p_worse())
    assert (a_test(0.1).p_worse(7), a_test(-0.1).p_better(7)) == (1.0, 1.0)
    assert test.p_worse_items(7) == pytest.approx(7 * test.p_worse_items())


def test_the_interval_holds_what_two_one_sided_tests_do_not_reject() -> None:
    test = a_test(-0.02)
    low, high = test.interval(0.9)
    assert a_test(low).delta < test.delta < high
    assert test.equivalence_p(-low) == pytest.approx(0.05)


def test_the_detectable_effect_is_found_as_often_as_it_says() -> None:
    test = a_test(0.0, 1e-4, Jitter(tau2=9e-6, variance=0.0))
    rng = np.random.default_rng(0)
    seen = rng.normal(-test.mde(1e-3), test.stderr, 20_000)
    found = stats.norm.cdf(seen / test.stderr) < 1e-3
    assert found.mean() == pytest.approx(0.8, abs=0.01)


def test_healthy_differences_are_flagged_as_often_as_the_level_says() -> None:
    """Jitter is known from few second differences: with a normal distribution this is far too often."""
    rng = np.random.default_rng(4)
    shape, mean = 4.0, 1e-5
    noise = Jitter(tau2=mean, variance=mean**2 / (shape - 2))
    flagged = plain = 0
    for _ in range(4000):
        tau2 = mean * (shape - 1) / rng.gamma(shape)
        delta = float(rng.normal(0, math.sqrt(tau2 * 1.1)))
        flagged += a_test(delta, 0.0, noise).p_worse() < 0.001
        plain += stats.norm.cdf(delta / math.sqrt(mean * 1.1)) < 0.001
    assert flagged / 4000 == pytest.approx(0.001, abs=0.0015)
    assert plain > 5 * flagged
