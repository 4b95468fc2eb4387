"""How the run's alpha is shared out."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.domain.records.types import Baseline
from tracker.domain.regression.budget import (
    BEHAVIOUR_SHARE,
    DEFAULT,
    ONE_SIZE,
    PLAIN,
    POOLED,
    SCORE_SHARE,
    Design,
    alpha_per_checkpoint,
)
from tracker.domain.regression.detector import ErrorBudget

ALPHA = 0.05


def spent(checkpoints: int, planned: int | None) -> float:
    return math.fsum(alpha_per_checkpoint(ALPHA, position, planned) for position in range(checkpoints))


@given(st.integers(1, 2000))
def test_a_planned_run_spends_exactly_its_alpha(planned: int) -> None:
    assert spent(planned, planned) == pytest.approx(ALPHA)


@given(st.integers(0, 5000))
def test_a_run_of_unknown_length_never_spends_more(checkpoints: int) -> None:
    assert spent(checkpoints, None) <= ALPHA * (1 + 1e-12)


@pytest.mark.parametrize(("checkpoints", "share"), [(100, 0.5), (300, 0.75), (700, 0.875), (1500, 0.9375)])
def test_a_run_of_unknown_length_spends_in_epochs(checkpoints: int, share: float) -> None:
    assert spent(checkpoints, None) == pytest.approx(ALPHA * share)


@given(st.integers(0, 3000))
def test_the_share_of_an_unknown_length_never_rises(position: int) -> None:
    assert alpha_per_checkpoint(ALPHA, position + 1, None) <= alpha_per_checkpoint(ALPHA, position, None)


@given(st.integers(1, 200), st.integers(0, 300))
def test_a_run_that_outgrows_its_plan_goes_on_as_one_of_unknown_length(planned: int, more: int) -> None:
    assert alpha_per_checkpoint(ALPHA, planned + more, planned) == alpha_per_checkpoint(ALPHA, more, None)
    assert spent(planned + more, planned) <= 2 * ALPHA * (1 + 1e-12)


def test_the_shares_of_scores_and_behaviour_make_up_the_whole() -> None:
    assert pytest.approx(1.0) == SCORE_SHARE + 2 * BEHAVIOUR_SHARE


def test_in_the_plain_design_every_test_pays_the_same() -> None:
    level = ErrorBudget(alpha=0.05, planned=100, benchmarks=20, design=PLAIN)
    pinned = replace(level, pinned=True)
    assert level.alpha_test(0, 1, Baseline.RECENT) == pytest.approx(0.05 / (100 * 20 * 2 * 4))
    assert pinned.alpha_test(99, 8, Baseline.PINNED) == pytest.approx(0.05 / (100 * 20 * 3 * 4))


@pytest.mark.parametrize("design", [DEFAULT, PLAIN, ONE_SIZE])
@pytest.mark.parametrize("pinned", [False, True])
def test_the_tests_of_a_checkpoint_never_spend_more_than_its_share(design: Design, pinned: bool) -> None:  # noqa: FBT001
    level = ErrorBudget(alpha=0.05, planned=100, benchmarks=20, design=design, pinned=pinned)
    baselines = (Baseline.RECENT, Baseline.PEAK, *((Baseline.PINNED,) if pinned else ()))
    spent = math.fsum(level.alpha_test(3, m, baseline) for m in POOLED for baseline in baselines)
    assert spent == pytest.approx(0.05 / (100 * 20))


def test_long_pools_get_more_of_the_level_than_short_ones() -> None:
    level = ErrorBudget(alpha=0.05, planned=100, benchmarks=20)
    shares = [level.alpha_test(0, m, Baseline.RECENT) for m in POOLED]
    assert shares == sorted(shares)
    assert level.alpha_test(0, 1, Baseline.RECENT) > level.alpha_test(0, 1, Baseline.PEAK)
