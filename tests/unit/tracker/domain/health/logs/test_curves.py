import posixpath
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracker.domain.health.logs.curves import points_of, step_of_row
from tracker.domain.records.types import CurvePoint

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=5),
    max_leaves=10,
)


def test_a_row_becomes_one_point_a_metric() -> None:
    rows = [{"step": 5, "loss": 1.5, "learning_rate": 1e-4, "grad_norm": 2, "eval_loss": "0.5"}]
    assert points_of(rows, up_to_step=10) == (
        CurvePoint(key="train/eval_loss", step=5, value=0.5),
        CurvePoint(key="train/grad_norm", step=5, value=2.0),
        CurvePoint(key="train/learning_rate", step=5, value=1e-4),
        CurvePoint(key="train/loss", step=5, value=1.5),
    )


def test_what_is_no_finite_number_is_left_out() -> None:
    row = {
        "step": 1,
        "a": float("nan"),
        "b": float("inf"),
        "c": "46s",
        "d": None,
        "e": True,
        "f": [1],
        "g": "0.2%",
        "": 1,
    }
    assert points_of([row], up_to_step=1) == ()


def test_a_later_row_wins() -> None:
    rows = [{"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.0}, {"step": 1, "loss": 1.0}]
    assert [(p.step, p.value) for p in points_of(rows, up_to_step=9)] == [(1, 1.0), (2, 2.0)]


def test_steps_beyond_the_checkpoint_are_left_for_the_next_one() -> None:
    rows = [{"step": 1, "loss": 3.0}, {"step": 20, "loss": 2.0}]
    assert [p.step for p in points_of(rows, up_to_step=10)] == [1]


def test_the_summary_at_the_end_is_no_value_at_a_step() -> None:
    assert points_of([{"step": 9, "train_runtime": 12.0, "train_loss": 2.0, "total_flos": 1e9}], up_to_step=9) == ()


@pytest.mark.parametrize(
    ("row", "step"),
    [
        ({"step": 4}, 4),
        ({"step": "4"}, 4),
        ({"global_step": 4.0}, 4),
        ({"global_step/max_steps": "4/20"}, 4),
        ({"current_steps": 4, "total_steps": 20}, 4),
        ({"step": -1}, None),
        ({"step": 1.5}, None),
        ({"step": "four"}, None),
        ({"step": True}, None),
        ({"step": None, "global_step": 4}, 4),
        ({"loss": 1.0}, None),
    ],
)
def test_a_step_is_found_under_the_names_that_trainers_use(row: dict[str, object], step: int | None) -> None:
    assert step_of_row(row) == step


def test_keys_are_ones_that_the_store_takes() -> None:
    row = {"step": 1, "train_speed(iter/s)": 1.0, "memory(GiB)": 2.0, "pass@1": 3.0, "../x": 4.0, "acc,none": 5.0}
    for point in points_of([row], up_to_step=1):
        assert re.fullmatch(r"[/\w.\- ]*", point.key), point.key
        assert posixpath.normpath(point.key) == point.key
        assert len(point.key) <= 250


def test_two_metrics_whose_keys_would_be_equal_stay_two() -> None:
    points = points_of([{"step": 1, "a(b)": 1.0, "a[b]": 2.0}], up_to_step=1)
    assert len({p.key for p in points}) == 2


@settings(deadline=None)
@given(st.lists(ANY_JSON, max_size=6))
def test_no_row_whatever_breaks_it(rows: list[object]) -> None:
    points = points_of(rows, up_to_step=2**40)
    assert list(points) == sorted(points, key=lambda p: (p.step, p.key))
    assert len({(p.key, p.step) for p in points}) == len(points)
