import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from benchmarks.verdicts.series import Case, simulate
from tests.unit.tracker.domain.forgetting.building import matrix_from, steps_of
from tracker.domain.forgetting.sample_lives import (
    SampleEvent,
    event_matrix,
    flow_between,
    is_lost,
    known_share,
    lives_of,
    sample_events,
    step_events,
    windows_around,
)
from tracker.domain.scores.matrix import FloatArray

NAN = float("nan")
TABLES = arrays.arrays(
    np.float64,
    arrays.array_shapes(min_dims=2, max_dims=2, min_side=2, max_side=14),
    elements=st.sampled_from([0.0, 1.0, 0.5, 0.7, NAN]),
)


def test_a_sample_is_learned_forgotten_and_relearned() -> None:
    changes = event_matrix(lives_of(matrix_from([[0.0], [1.0], [1.0], [0.0], [NAN], [1.0]]), np.arange(6)))
    events = sample_events(changes[:, 0], steps_of(6))
    assert [(e.step, e.change) for e in events] == [
        (200, SampleEvent.LEARNED),
        (400, SampleEvent.FORGOTTEN),
        (600, SampleEvent.RELEARNED),
    ]


def test_half_right_is_not_right() -> None:
    assert not lives_of(matrix_from([[0.5], [0.51]]), np.arange(2)).right[0, 0]
    assert lives_of(matrix_from([[0.5], [0.51]]), np.arange(2)).right[1, 0]


def test_a_sample_without_scores_has_no_life() -> None:
    matrix = matrix_from([[NAN], [NAN], [NAN], [NAN]])
    assert not event_matrix(lives_of(matrix, np.arange(4))).any()
    assert np.isnan(known_share(matrix, np.arange(2)))[0]


def test_events_are_counted_by_step() -> None:
    events = step_events(event_matrix(lives_of(matrix_from([[1, 0], [0, 1], [1, 1]]), np.arange(3))), steps_of(3))
    assert [(e.step, e.learned, e.forgotten, e.relearned) for e in events] == [
        (100, 1, 0, 0),
        (200, 1, 1, 0),
        (300, 0, 0, 1),
    ]


def test_windows_end_at_the_known_checkpoints_and_at_the_newest() -> None:
    rows = np.arange(3, 33)
    windows = windows_around(rows, rows[:10], width=10)
    assert windows is not None
    assert windows.before.tolist() == [8, 9, 10, 11, 12]
    assert windows.after.tolist() == [28, 29, 30, 31, 32]


def test_windows_are_shorter_in_short_runs_and_never_overlap() -> None:
    rows = np.arange(10)
    windows = windows_around(rows, rows[4:7], width=4)
    assert windows is not None
    assert windows.before.tolist() == [4, 5, 6]
    assert windows.after.tolist() == [7, 8, 9]


@pytest.mark.parametrize("before", [[0], [7, 8]])
def test_one_checkpoint_on_a_side_is_too_few(before: list[int]) -> None:
    assert windows_around(np.arange(10), np.array(before), width=2) is None


@given(TABLES)
def test_what_was_never_learned_is_never_lost(values: FloatArray) -> None:
    rows = np.arange(values.shape[0])
    matrix = matrix_from(values)
    changes = event_matrix(lives_of(matrix, rows))
    learned = np.any(changes == 1, axis=0)
    half = max(1, rows.size // 2)
    lost = is_lost(known_share(matrix, rows[:half]), known_share(matrix, rows[half:]))
    assert not np.any(lost & ~learned)
    assert not np.any((changes == 2).sum(axis=0)[~learned])


@given(TABLES)
def test_changes_take_turns(values: FloatArray) -> None:
    changes = event_matrix(lives_of(matrix_from(values), np.arange(values.shape[0])))
    for life in changes.T:
        happened = life[life > 0].tolist()
        assert happened == ([1, *([2, 3] * len(happened))])[: len(happened)]


@given(TABLES)
def test_what_a_run_loses_the_reversed_run_gains(values: FloatArray) -> None:
    forward, backward = matrix_from(values), matrix_from(values[::-1])
    rows = np.arange(values.shape[0])
    size = rows.size // 2
    there = flow_between(known_share(forward, rows[:size]), known_share(forward, rows[-size:]), window=5)
    back = flow_between(known_share(backward, rows[:size]), known_share(backward, rows[-size:]), window=5)
    assert (there.lost, there.gained, there.net_lost) == (back.gained, back.lost, -back.net_lost)


@given(TABLES, st.integers(0, 2**32 - 1))
def test_the_order_of_samples_does_not_matter(values: FloatArray, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(values.shape[1])
    rows = np.arange(values.shape[0])
    one = event_matrix(lives_of(matrix_from(values), rows))
    other = event_matrix(lives_of(matrix_from(values[:, order]), rows))
    assert np.array_equal(one[:, order], other)


def test_a_benchmark_that_fell_expects_as_many_false_entries_as_it_gained() -> None:
    before = np.array([1.0] * 600 + [0.0] * 400)
    after = np.array([0.0] * 100 + [1.0] * 500 + [0.0] * 390 + [1.0] * 10)
    flow = flow_between(before, after, window=5)
    assert (flow.lost, flow.gained) == (100, 10)
    assert flow.expected_false == pytest.approx(10.5 / (1 + 0.5 / 3))


def test_learning_is_not_taken_for_churn() -> None:
    flow = flow_between(np.array([0.0] * 500 + [1.0] * 500), np.array([1.0] * 999 + [0.0]), window=5)
    assert (flow.lost, flow.gained) == (1, 500)
    assert flow.expected_false == pytest.approx(3.0)  # .3 % of 1000


def test_nothing_scored_expects_nothing() -> None:
    nothing = np.full(10, NAN)
    assert flow_between(nothing, nothing, window=2).expected_false == 0.0


def test_a_healthy_plateau_lists_2_to_4_of_1000_and_a_loss_of_5_points_many_more() -> None:
    healthy, fallen = _shares(plant=None), _shares(plant="drop5")
    assert 0.002 <= healthy["lost"] <= 0.004
    assert abs(healthy["net"]) <= 0.002
    assert healthy["expected"] == pytest.approx(healthy["lost"], abs=0.001)
    assert 0.014 <= fallen["lost"] <= 0.020
    assert fallen["net"] >= 0.013
    assert fallen["expected"] <= 0.2 * fallen["lost"]  # four of five entries are really lost


def test_wide_apart_windows_of_a_healthy_plateau_expect_what_they_list() -> None:
    far = _shares(plant=None, apart=True)
    assert far["expected"] == pytest.approx(far["lost"], rel=0.25)


def _shares(plant: str | None, *, apart: bool = False) -> dict[str, float]:
    """Return shares of all samples over simulated runs, window 5 on either side of the onset."""
    total = {"lost": 0.0, "net": 0.0, "expected": 0.0}
    runs = 12
    for seed in range(700, 700 + runs):
        series = simulate(seed, Case(world="real", trend="plateau", plant=plant), sizes=(500, 1319))
        for k, benchmark in enumerate(series.benchmarks):
            onset = int(series.onset[k]) if plant else 55
            scores = benchmark.scores.astype(float)
            after = scores[95:] if apart else scores[onset : onset + 5]
            flow = flow_between(scores[onset - 5 : onset].mean(axis=0), after.mean(axis=0), window=5)
            total["lost"] += flow.lost
            total["net"] += flow.net_lost
            total["expected"] += flow.expected_false
    n = runs * (1319 + 500)
    return {name: count / n for name, count in total.items()}
