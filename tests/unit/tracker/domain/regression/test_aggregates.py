"""A benchmark without samples: its noise is never taken for less than it can be, and chance is never an ability."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.replay_series import aggregate_word
from eval_jobs.errors import BadData
from tracker.domain.records.types import Baseline, VerdictWord
from tracker.domain.regression.aggregates import (
    AggregateSeries,
    aggregate_evidence,
    bend_weights,
)
from tracker.domain.regression.blocks import second_difference_weights
from tracker.domain.regression.detector import ErrorBudget, Evidence
from tracker.domain.scores.matrix import FloatArray, empty_matrix, inserted
from tracker.domain.scores.suspicion import at_most_suspect
from tracker.domain.verdicts.aggregate_judge import had_something_to_lose
from tracker.domain.verdicts.hypothesis import Thresholds

N = 1000
THRESHOLDS = Thresholds(min_effect=0.01, equivalence_margin=0.01)
LEVEL = ErrorBudget(alpha=0.05, planned=30, benchmarks=1)


def series(means: FloatArray, chance: float | None = 0.25, first_step: int = 1000, n: int = N) -> AggregateSeries:
    """Return a series every 1000 steps, with the standard errors of `n` questions."""
    steps = first_step + 1000 * np.arange(means.size)
    return AggregateSeries(steps=steps, means=means, stderrs=np.sqrt(means * (1 - means) / (n - 1)), chance=chance)


def noisy(level: FloatArray, sd: float = 0.004, seed: int = 1) -> FloatArray:
    """Return `level` with independent noise on every checkpoint."""
    return level + np.random.default_rng(seed).normal(0, sd, level.size)


def judged(
    one: AggregateSeries, until: int | None = None, level: ErrorBudget = LEVEL
) -> tuple[tuple[Evidence, ...], ...]:
    """Return the tests at each checkpoint, the last one is `until`."""
    return tuple(aggregate_evidence([one], int(step), level)[0] for step in one.steps[:until])


def words(one: AggregateSeries) -> list[VerdictWord]:
    """Return the uncapped word at each checkpoint."""
    found = judged(one)
    return [
        aggregate_word(found[max(0, t - 2) : t + 1], THRESHOLDS, learned=had_something_to_lose(one, found[t]))
        if found[t]
        else VerdictWord.FIRST
        for t in range(len(found))
    ]


# --- the bound


@given(
    st.lists(st.floats(0.05, 0.95), min_size=3, max_size=8),
    st.floats(0.0, 1.0),
    st.lists(st.floats(-1.0, 1.0), min_size=8, max_size=8),
)
def test_the_variance_bounds_every_equal_correlation(means: list[float], r: float, weights: list[float]) -> None:
    one = series(np.array(means))
    w = np.array(weights[: len(means)])
    covariance = np.outer(one.stderrs, one.stderrs) * (r + (1 - r) * np.eye(len(means)))
    (contrast,) = one.contrasts(w[np.newaxis])
    assert contrast.delta == pytest.approx(w @ one.means, abs=1e-12)
    assert contrast.item_variance >= w @ covariance @ w * (1 - 1e-9)


def test_the_variance_is_never_below_that_of_the_samples() -> None:
    """Items of lasting difficulty: pairing removes most of the variance, and the bound must stay above what is left."""
    rng = np.random.default_rng(5)
    right = (rng.random((12, N)) < rng.beta(0.5, 0.5, N)).astype(np.float64)
    matrix = empty_matrix(N)
    for row in right:
        matrix = inserted(matrix, matrix.means.size, row)
    weights = np.zeros((3, 12))
    for q, m in enumerate((1, 2, 4)):
        weights[q, -m:] = 1 / m
        weights[q, : 12 - m] -= 1 / (12 - m)
    bounds = series(matrix.means).contrasts(weights)
    for paired, bound in zip(matrix.contrasts(weights), bounds, strict=True):
        assert bound.delta == pytest.approx(paired.delta, abs=1e-12)
        assert 1.5 * paired.item_variance < bound.item_variance < 8 * paired.item_variance


def test_a_level_is_no_surer_for_more_checkpoints_of_the_same_questions() -> None:
    one = series(np.full(10, 0.6))
    (level,) = one.contrasts(np.full((1, 10), 0.1))
    assert level.item_variance == pytest.approx(0.24 / (N - 1))


def test_the_number_of_questions_is_recovered_from_the_errors() -> None:
    assert series(np.array([0.2, 0.5, 0.8]), n=408).n_samples == 408


def test_a_score_of_zero_is_not_known_exactly() -> None:
    one = series(np.array([0.0, 0.0, 0.01]))
    (contrast,) = one.contrasts(np.array([[-1.0, 1.0, 0.0]]))
    assert contrast.item_variance == pytest.approx(2 / N**2)


# --- what is refused


@pytest.mark.parametrize(
    ("means", "stderrs", "message"),
    [
        ([11.9, 12.1], [0.4, 0.4], "outside"),
        ([0.5, float("nan")], [0.1, 0.1], "outside"),
        ([0.5, 0.5], [0.1, float("nan")], "standard errors are missing or 0"),
        ([0.5, 0.5], [0.0, 0.0], "standard errors are missing or 0"),
        ([0.5, 0.5], [0.1], "differ in length"),
    ],
)
def test_what_is_no_score_with_an_error_is_refused(means: list[float], stderrs: list[float], message: str) -> None:
    with pytest.raises(BadData, match=message):
        AggregateSeries(steps=np.array([1, 2]), means=np.array(means), stderrs=np.array(stderrs))


def test_steps_out_of_order_are_refused() -> None:
    with pytest.raises(BadData, match="ascending"):
        AggregateSeries(steps=np.array([2, 1]), means=np.full(2, 0.5), stderrs=np.full(2, 0.1))


# --- jitter on uneven steps


def test_second_differences_are_blind_to_a_trend_in_log_step() -> None:
    steps = np.array([1000, 3000, 13000, 23000, 33000])
    weights = bend_weights(steps, np.arange(5), 40)
    assert weights.shape == (3, 5)
    assert weights @ (0.1 * np.log1p(steps)) == pytest.approx(np.zeros(3), abs=1e-12)
    assert weights.sum(axis=1) == pytest.approx(np.zeros(3), abs=1e-12)
    assert (weights**2).sum(axis=1) == pytest.approx(np.full(3, 6.0))


def test_far_from_the_start_they_are_the_ordinary_ones() -> None:
    rows = np.arange(20)
    ordinary = second_difference_weights(rows, rows / 1.0, 7)
    assert bend_weights(10**9 + rows, rows, 7) == pytest.approx(ordinary, abs=1e-5)


def test_a_benchmark_is_at_least_as_noisy_as_it_shows() -> None:
    """Nineteen quiet benchmarks must not talk one that jumps by five points into a jitter of half a point."""
    quiet = [series(noisy(np.full(30, 0.6), seed=s), n=10000) for s in range(19)]
    wild = series(noisy(np.full(30, 0.5), sd=0.05, seed=99), n=10000)
    found = aggregate_evidence([*quiet, wild], 30000, ErrorBudget(alpha=0.05, planned=30, benchmarks=20))
    assert np.sqrt(found[-1][0].jitter.tau2) > 0.03
    assert max(np.sqrt(f[0].jitter.tau2) for f in found[:-1]) < 0.01
    assert not any(e.is_loss(0.01) for f in found for e in f)


# --- verdicts


def test_a_healthy_series_raises_no_alarm() -> None:
    said = words(series(noisy(0.3 + 0.3 * np.linspace(0, 1, 30))))
    assert not {VerdictWord.REGRESSED, VerdictWord.FORGOTTEN} & set(said)


def test_a_lasting_loss_is_regressed_and_then_forgotten() -> None:
    level = np.concatenate([np.linspace(0.3, 0.6, 10), np.full(8, 0.6), np.full(12, 0.4)])
    said = words(series(noisy(level)))
    assert VerdictWord.REGRESSED not in said[:18]
    assert said[18] is VerdictWord.REGRESSED
    assert said[-1] is VerdictWord.FORGOTTEN


def test_without_samples_a_loss_is_suspect_at_most() -> None:
    assert at_most_suspect(VerdictWord.FORGOTTEN) is at_most_suspect(VerdictWord.REGRESSED) is VerdictWord.SUSPECT
    assert at_most_suspect(VerdictWord.INCONCLUSIVE) is VerdictWord.INCONCLUSIVE


def test_one_dip_is_not_forgetting() -> None:
    level = np.full(30, 0.6)
    level[20] = 0.4
    assert VerdictWord.FORGOTTEN not in words(series(noisy(level)))


def test_the_other_answer_for_every_question_is_no_ability() -> None:
    """A model that knows nothing says one answer to all, then the other: 63.5 % and 36.5 % of 104 questions."""
    means = np.concatenate([np.full(12, 66 / 104), np.full(18, 38 / 104)])
    for chance, first_step in ((66 / 104, 1000), (0.5, 0), (None, 0), (None, 1000)):
        said = words(series(means, chance=chance, first_step=first_step, n=104))
        assert VerdictWord.REGRESSED in said
        assert VerdictWord.FORGOTTEN not in said


def test_what_a_model_brought_along_can_be_forgotten() -> None:
    """A run that begins with a trained model never rises above its first block; it stands above chance all the same."""
    means = noisy(np.concatenate([np.full(12, 0.7), np.full(18, 0.5)]))
    assert words(series(means, chance=0.25))[-1] is VerdictWord.FORGOTTEN
    assert words(series(means, chance=None))[-1] is VerdictWord.REGRESSED


# --- of several benchmarks


def test_a_benchmark_without_the_step_is_passed_over() -> None:
    whole = series(noisy(np.full(10, 0.5)))
    gap = AggregateSeries(steps=whole.steps[:-1], means=whole.means[:-1], stderrs=whole.stderrs[:-1])
    found = aggregate_evidence([gap, whole], int(whole.steps[-1]), LEVEL)
    assert found[0] == ()
    assert len(found[1]) > 0


def test_later_checkpoints_do_not_change_a_verdict() -> None:
    whole = series(noisy(np.concatenate([np.full(15, 0.5), np.full(15, 0.1)])))
    early = AggregateSeries(
        steps=whole.steps[:15], means=whole.means[:15], stderrs=whole.stderrs[:15], chance=whole.chance
    )
    ours, theirs = judged(whole, until=15)[-1], judged(early)[-1]
    assert [e.p_worse for e in ours] == pytest.approx([e.p_worse for e in theirs], rel=1e-9)
    assert [e.test.stderr for e in ours] == pytest.approx([e.test.stderr for e in theirs], rel=1e-9)


def test_before_there_is_a_peak_the_recent_checkpoints_say_what_was_learned() -> None:
    one = series(noisy(np.full(6, 0.6)))
    found = judged(one, level=ErrorBudget(alpha=0.05, planned=100, benchmarks=1))[-1]
    assert {e.blocks.baseline for e in found} == {Baseline.RECENT}
    assert had_something_to_lose(one, found)
    assert not had_something_to_lose(replace(one, chance=0.6), found)
    assert not had_something_to_lose(one, ())
