"""Long curves are thinned, and branches and several logs of one training are distinguished."""

import math
from dataclasses import replace

import pytest

from tracker.domain.health.logs.thinning import (
    MAX_KEYS,
    CurveThinner,
    continuing,
    newest_branch,
    not_among,
    thinned_curves,
    thinned_step,
)
from tracker.domain.records.types import CurvePoint


def curve(*steps: int, key: str = "train/loss") -> list[CurvePoint]:
    return [CurvePoint(key=key, step=step, value=step / 10) for step in steps]


@pytest.mark.parametrize("steps", [1, 1_000, 20_000, 1_000_000, 30_000_000])
def test_a_curve_of_any_length_has_at_most_two_thousand_points(steps: int) -> None:
    kept, step = 0, 0
    while step < steps:
        kept += 1
        after = step + 1
        while after < steps and thinned_step(after) == thinned_step(step):
            after += max(1, step // 200)
        step = thinned_step(after) if thinned_step(after) > step else after
    assert kept <= 2_000


def test_a_whole_curve_keeps_the_first_of_each_group_and_its_newest_point() -> None:
    kept = thinned_curves(curve(*range(5_000)))
    steps = [point.step for point in kept]
    assert steps[:1024] == list(range(1024))
    assert steps[-1] == 4_999
    assert len(steps) == len(set(steps)) < 1_500
    assert steps == sorted(steps)


def test_a_growing_curve_has_the_points_of_the_whole_one() -> None:
    thinner, kept = CurveThinner(), list[CurvePoint]()
    for step in range(5_000):
        kept += thinner.take(step, {"loss": step / 10})
    assert thinner.take(4_999, {"loss": 1.0}) == []
    assert [*kept, *thinner.released()] == list(thinned_curves(curve(*range(5_000))))
    assert thinner.released() == []


def test_the_first_log_with_a_step_decides_and_steps_that_go_back_count_again() -> None:
    thinner = CurveThinner()
    assert [point.value for point in thinner.take(10, {"loss": 2.125, "lr": 0.1})] == [2.125, 0.1]
    assert thinner.take(10, {"loss": 2.13}) == []
    assert thinner.take(9, {"loss": 2.2}) == []
    thinner.go_back(10)
    assert [point.value for point in thinner.take(10, {"loss": 2.5})] == [2.5]


def test_names_are_those_of_charts_and_text_that_looks_like_numbers_is_bounded() -> None:
    thinner = CurveThinner()
    points = thinner.take(1, {"lr": 1.0, "val_loss": 2.0, "step": 3.0, "grad@norm": math.nan, "tok/s": 4.0})
    assert [point.key for point in points] == ["train/learning_rate", "train/eval_loss", "train/tok_s"]
    for number in range(2 * MAX_KEYS):
        thinner.take(number + 2, {f"text {number}": 1.0})
    assert len(thinner.newest) == MAX_KEYS


def test_of_logged_points_the_newest_branch_counts() -> None:
    logged = [*curve(10, 20, 30), *curve(20, 25), *curve(10, key="train/lr")]
    assert [(point.key, point.step) for point in newest_branch(logged)] == [
        ("train/loss", 10),
        ("train/lr", 10),
        ("train/loss", 20),
        ("train/loss", 25),
    ]


def test_a_checkpoint_adds_what_follows_and_what_a_restarted_training_changed() -> None:
    """In whatever order checkpoints come: an older one has its newest point, which the thinned newer one lacks."""
    whole = curve(*range(10, 40_001, 10))
    newer, older = thinned_curves(whole), thinned_curves(whole[:2003])
    assert older[-1] not in newer
    assert continuing(older, newer) == []
    assert newest_branch([*older, *continuing(newer, older)])[-1] == newer[-1]
    again = [replace(point, value=point.value + 1) for point in newer[1500:1600]]
    assert continuing([*newer[:1500], *again], newer) == again
    assert newest_branch([*newer, *continuing([*newer[:1500], *again], newer)]) == (*newer[:1500], *again)


def test_a_point_that_differs_by_rounding_is_known() -> None:
    known = [CurvePoint(key="train/loss", step=10, value=5.5778)]
    new = [CurvePoint(key="train/loss", step=10, value=value) for value in (5.578, 5.58, 5.7, 5.701)]
    assert [point.value for point in not_among(new, known, rounding=0.005)] == [5.7]
