"""Scores of flags that were set by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from benchmarks.verdicts.scoring import Rate, RunScore, detection, false_alarms, false_flags, score_run

T = 20
SIZES = np.array([100, 100, 500])
ONSET = np.array([T, 10, 12])


def score(*flagged: tuple[int, int], horizon: int = 5) -> RunScore:
    flags = np.zeros((T, 3), dtype=bool)
    for t, k in flagged:
        flags[t, k] = True
    return score_run(flags, ONSET, SIZES, horizon)


def test_nothing_flagged_is_nothing_found_and_no_false_alarm() -> None:
    assert score() == RunScore(false_flags=0, healthy=T + 10 + 12, delays={100: None, 500: None})


def test_flags_before_the_onset_are_false_and_after_it_find_the_loss() -> None:
    assert score((19, 0), (9, 1), (12, 2), (13, 2)) == RunScore(
        false_flags=2, healthy=T + 10 + 12, delays={100: None, 500: 0}
    )


def test_a_flag_beyond_the_horizon_is_too_late_but_not_false() -> None:
    assert score((14, 1), (17, 2)).delays == {100: 4, 500: None}
    assert score((14, 1), (17, 2)).false_flags == 0


def test_rates_are_over_runs_and_over_flags() -> None:
    scores = [score(), score((3, 0), (4, 0)), score((11, 1))]
    assert false_alarms(scores) == Rate(count=1, total=3)
    assert false_flags(scores) == Rate(count=2, total=3 * 42)


def test_power_and_the_median_delay_are_of_one_size() -> None:
    scores = [score((11, 1)), score((14, 1)), score((12, 2))]
    found = detection(scores, 100)
    assert (found.power, found.median_delay) == (Rate(count=2, total=3), 2.5)
    assert detection([score()], 500).median_delay is None


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_is_clopper_and_pearsons(counts: tuple[int, int]) -> None:
    k, n = counts
    expected = stats.binomtest(k, n).proportion_ci(method="exact")
    assert Rate(count=k, total=n).interval() == pytest.approx((expected.low, expected.high), abs=1e-9)
