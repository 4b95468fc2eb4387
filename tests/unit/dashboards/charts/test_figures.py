from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.charts.figures import Figure, Line, Panel, Point, apart, frames, runs, ticks


@pytest.mark.parametrize(
    ("low", "high", "at_most", "expected"),
    [
        (0, 1, 6, (0, 0.2, 0.4, 0.6, 0.8, 1.0)),
        (100, 1000, 10, (100, 200, 300, 400, 500, 600, 700, 800, 900, 1000)),
        (500, 100_000, 4, (50_000, 100_000)),
        (7, 7, 5, (7,)),
    ],
)
def test_ticks_are_round(low: float, high: float, at_most: int, expected: tuple[float, ...]) -> None:
    assert ticks(low, high, at_most=at_most) == pytest.approx(expected)


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.integers(2, 12))
def test_ticks_lie_inside_and_are_few(low: float, width: float, at_most: int) -> None:
    high = low + width
    found = ticks(low, high, at_most=at_most)
    tolerance = 1e-6 * max(width, abs(low))
    assert all(low - tolerance <= value <= high + tolerance for value in found)
    assert len(found) <= at_most + 1


@given(st.lists(st.floats(0, 100), max_size=6))
def test_labels_never_overlap_and_keep_their_order(wanted: list[float]) -> None:
    places = apart(sorted(wanted), low=0, high=100, distance=15)
    assert all(b - a >= 15 - 1e-9 for a, b in pairwise(places))
    assert all(place <= 100 for place in places)


def test_a_line_is_interrupted_where_a_value_is_missing_and_where_the_measurement_changed() -> None:
    points = tuple(Point(step=step, value=0.5) for step in (100, 200, 400, 500, 600))
    parts = runs(Line(name="sums", points=points, breaks=(600, 300)))
    assert [[p.step for p in part] for part in parts] == [[100, 200], [400, 500], [600]]


def test_panels_share_the_step_axis() -> None:
    panel = Panel(title="", lines=(), low=0, high=1)
    figure = Figure(ident="x", title="", description="", panels=(panel, panel), x_min=100, x_max=900)
    upper, lower = frames(figure, 400)
    assert upper.x(500) == lower.x(500) == (upper.left + upper.right) / 2
    assert upper.bottom < lower.top


def test_a_value_outside_the_axis_stays_inside_the_plot() -> None:
    panel = Panel(title="", lines=(), low=0, high=1)
    (frame,) = frames(Figure(ident="x", title="", description="", panels=(panel,), x_min=1, x_max=2), 400)
    assert frame.y(7.0) == frame.top
    assert frame.y(-7.0) == frame.bottom


def test_a_single_step_lies_in_the_middle() -> None:
    panel = Panel(title="", lines=(), low=0, high=1)
    (frame,) = frames(Figure(ident="x", title="", description="", panels=(panel,), x_min=5, x_max=5), 400)
    assert frame.left < frame.x(5) < frame.right
