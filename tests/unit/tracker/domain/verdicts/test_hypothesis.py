"""The words for the tests of one checkpoint, and their order."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.domain.records.types import Baseline, Comparison, VerdictWord
from tracker.domain.regression.blocks import Blocks
from tracker.domain.regression.detector import Evidence
from tracker.domain.regression.jitter import Jitter
from tracker.domain.regression.pooled_test import PooledTest
from tracker.domain.verdicts.hypothesis import (
    Thresholds,
    gains,
    is_equivalent,
    is_suspicious,
    losses,
    suspects,
    word_of,
    word_of_pair,
)

W = VerdictWord
SIZES = Thresholds(min_effect=0.01, equivalence_margin=0.01)
ALPHA_TEST = 1e-5


def evidence(
    delta: float,
    stderr: float = 0.002,
    baseline: Baseline = Baseline.RECENT,
    m: int = 1,
    n: int = 1_000_000,
    selected_from: int = 1,
) -> Evidence:
    return Evidence(
        blocks=Blocks(baseline=baseline, new=np.arange(10, 10 + m), base=np.arange(10), selected_from=selected_from),
        test=PooledTest(delta=delta, stderr=stderr, item_stderr=stderr, df=math.inf, n=n, common_fraction=1.0),
        alpha_test=ALPHA_TEST,
        jitter=Jitter(tau2=1e-6, variance=1e-13),
    )


def peak(delta: float, stderr: float = 0.002, **more: int) -> Evidence:
    return evidence(delta, stderr, Baseline.PEAK, **more)


@pytest.mark.parametrize(
    ("delta", "stderr", "word"),
    [
        (-0.03, 0.005, W.REGRESSED),
        (-0.009, 0.0001, W.EQUIVALENT),  # surely real, and smaller than what matters
        (0.03, 0.005, W.IMPROVED),
        (0.009, 0.0001, W.EQUIVALENT),
        (0.001, 0.002, W.EQUIVALENT),
        (-0.03, 0.009, W.SUSPECT),
        (-0.03, 0.03, W.INCONCLUSIVE),
        (0.03, 0.009, W.RISING),
        (0.0, 0.01, W.INCONCLUSIVE),
    ],
)
def test_one_test_has_one_word(delta: float, stderr: float, word: VerdictWord) -> None:
    assert word_of([evidence(delta, stderr)], SIZES) is word


def test_no_tests_conclude_nothing() -> None:
    assert word_of([], SIZES) is W.INCONCLUSIVE


def test_a_loss_against_any_baseline_outweighs_a_gain_against_another() -> None:
    both = [evidence(0.05), peak(-0.05)]
    assert word_of(both, SIZES) is W.REGRESSED
    assert losses(both, SIZES) == (both[1],)


def test_better_than_just_before_and_not_than_the_peak_is_no_improvement() -> None:
    assert word_of([evidence(0.05), peak(0.012, 0.01)], SIZES) is W.INCONCLUSIVE
    assert word_of([evidence(0.05)], SIZES) is W.IMPROVED
    assert gains([evidence(0.05), peak(0.04)], SIZES)[0].blocks.baseline is Baseline.PEAK


def test_the_choice_of_the_peak_is_paid_for() -> None:
    one, many = peak(-0.0088, 0.002), peak(-0.0088, 0.002, selected_from=9)
    sizes = Thresholds(min_effect=0.001, equivalence_margin=0.001)
    assert (word_of([one], sizes), word_of([many], sizes)) == (W.REGRESSED, W.SUSPECT)


def test_a_suspicion_pays_for_the_tests_of_its_checkpoint() -> None:
    p = 0.004
    z = 2.652  # one-sided p of .004
    one = evidence(-0.02, 0.02 / z)
    assert one.p_worse == pytest.approx(p, rel=0.01)
    assert suspects([one], SIZES) == (one,)
    assert suspects([one, *(evidence(0.0, 0.01) for _ in range(7))], SIZES) == ()


def test_equivalence_must_hold_against_every_baseline() -> None:
    assert is_equivalent([evidence(0.0), peak(0.0)], SIZES)
    assert not is_equivalent([evidence(0.0), peak(-0.008)], SIZES)
    assert not is_equivalent([], SIZES)


def test_equivalence_is_shown_by_four_checkpoints_together_where_there_are_four() -> None:
    alone, four, eight = evidence(0.0, 0.05), evidence(0.0, m=4), evidence(0.0, 0.05, m=8)
    assert is_equivalent([alone, four, eight], SIZES)
    assert not is_equivalent([evidence(0.0), evidence(0.0, 0.05, m=4)], SIZES)
    assert is_equivalent([evidence(0.0, 0.05), evidence(0.0, m=2)], SIZES)


def test_few_samples_that_all_stayed_show_no_equivalence() -> None:
    assert not is_equivalent([evidence(0.0, 1e-6, n=20)], SIZES)
    assert is_equivalent([evidence(0.0, 1e-6, n=2000)], SIZES)


deltas = st.floats(-0.3, 0.3, allow_subnormal=False)
errors = st.floats(1e-4, 0.1)


@given(deltas, errors)
def test_losses_and_gains_mirror_each_other(delta: float, stderr: float) -> None:
    one, other = evidence(delta, stderr), evidence(-delta, stderr)
    assert bool(losses([one], SIZES)) == bool(gains([other], SIZES))
    assert is_equivalent([one], SIZES) == is_equivalent([other], SIZES)


@given(st.lists(st.tuples(deltas, errors), min_size=1, max_size=8), deltas, errors)
def test_one_more_test_never_hides_a_loss(tests: list[tuple[float, float]], delta: float, stderr: float) -> None:
    found = [evidence(d, s) for d, s in tests]
    if word_of(found, SIZES) is W.REGRESSED:
        assert word_of([*found, evidence(delta, stderr)], SIZES) is W.REGRESSED


@given(deltas, errors, st.floats(0, 0.3))
def test_a_larger_loss_is_never_called_better(delta: float, stderr: float, more: float) -> None:
    badness = [W.IMPROVED, W.EQUIVALENT, W.INCONCLUSIVE, W.SUSPECT, W.REGRESSED]
    if delta <= 0:
        before, after = (word_of([evidence(d, stderr)], SIZES) for d in (delta, delta - more))
        assert badness.index(after) >= badness.index(before)


# --- two checkpoints that somebody chose


def pair_of(delta: float, p_worse: float) -> Comparison:
    return Comparison(
        baseline=Baseline.GIVEN,
        baseline_steps=(1,),
        pooled_steps=(2,),
        n_common=1000,
        common_fraction=1.0,
        delta=delta,
        stderr=0.01,
        ci_low=delta - 0.02,
        ci_high=delta + 0.02,
        p_worse=p_worse,
        p_better=1 - p_worse,
        p_worse_items=p_worse,
        jitter=0.0,
        n_lost=0,
        n_gained=0,
        method="paired-t",
    )


@pytest.mark.parametrize(
    ("delta", "p_worse", "equivalence_p", "word"),
    [
        (-0.03, 1e-6, 0.9, W.REGRESSED),
        (-0.005, 1e-6, 1e-4, W.EQUIVALENT),
        (0.03, 1 - 1e-6, 0.9, W.IMPROVED),
        (-0.001, 0.4, 0.01, W.EQUIVALENT),
        (-0.03, 0.005, 0.9, W.SUSPECT),
        (-0.005, 0.005, 0.2, W.INCONCLUSIVE),
        (-0.03, 0.2, 0.9, W.INCONCLUSIVE),
    ],
)
def test_a_pair_has_one_word(delta: float, p_worse: float, equivalence_p: float, word: VerdictWord) -> None:
    assert word_of_pair(pair_of(delta, p_worse), equivalence_p, 1e-4, SIZES) is word


def test_a_part_is_suspicious_where_any_one_test_is_below_its_level_however_small_the_loss() -> None:
    below, above = evidence(-0.0022, 0.001), evidence(-0.0020, 0.001)
    assert below.p_worse < 0.02 < above.p_worse
    assert not is_suspicious([])
    assert not is_suspicious([above] * 8)
    assert is_suspicious([above, below, evidence(0.05)])
    assert not is_suspicious([peak(-0.0022, 0.001, selected_from=2)])
