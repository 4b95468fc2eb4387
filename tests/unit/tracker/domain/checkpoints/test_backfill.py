from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_jobs.types import Generation
from tests.records import forgetting_run
from tracker.domain.checkpoints.backfill import FillOrder, StepFilter, chosen_steps, evaluation_order, time_left_s

STEPS = (100, 200, 300, 400, 500, 600, 700, 800, 900)


def test_bisection_begins_with_the_ends_and_halves_every_gap() -> None:
    assert evaluation_order(STEPS, FillOrder.BISECT) == (100, 900, 500, 300, 700, 200, 400, 600, 800)


def test_oldest_and_newest_are_what_they_say() -> None:
    assert evaluation_order((300, 100, 200), FillOrder.OLDEST) == (100, 200, 300)
    assert evaluation_order((300, 100, 200), FillOrder.NEWEST) == (300, 200, 100)


@given(st.sets(st.integers(min_value=0, max_value=10_000), max_size=60), st.sampled_from(FillOrder))
def test_every_order_holds_every_step_once(steps: set[int], order: FillOrder) -> None:
    found = evaluation_order(tuple(steps), order)
    assert sorted(found) == sorted(steps)


@given(st.sets(st.integers(min_value=0, max_value=10_000), min_size=3, max_size=60))
def test_at_no_moment_is_a_gap_more_than_twice_as_wide_as_another(steps: set[int]) -> None:
    ascending = sorted(steps)
    at = [ascending.index(step) for step in evaluation_order(tuple(steps), FillOrder.BISECT)]
    for count in range(2, len(at) + 1):
        known = sorted(at[:count])
        gaps = [high - low for low, high in pairwise(known)]
        assert max(gaps) <= 2 * min(gaps) + 1


@pytest.mark.parametrize(
    ("choice", "steps"),
    [
        (StepFilter(), STEPS),
        (StepFilter(every=4), (100, 500, 900)),
        (StepFilter(first=300, last=500), (300, 400, 500)),
        (StepFilter(first=250, every=3), (300, 600, 900)),
        (StepFilter(last=50), ()),
    ],
)
def test_steps_are_chosen_by_range_and_distance(choice: StepFilter, steps: tuple[int, ...]) -> None:
    assert chosen_steps(STEPS, choice) == steps


def test_the_time_left_is_what_the_newest_checkpoints_took() -> None:
    records = forgetting_run(trouble=False).records
    suites = [records[0].plan.suite]
    each = (records[0].finished_at - records[0].started_at) / timedelta(seconds=1)
    assert time_left_s(records, suites=suites, checkpoints=6, workers=2) == pytest.approx(3 * each, rel=0.5)
    taken_over = [replace(one, started_at=one.finished_at) for one in records[1:]]
    assert time_left_s((records[0], *taken_over), suites=suites, checkpoints=6, workers=2) == pytest.approx(
        3 * each, rel=0.5
    )
    assert time_left_s((), suites=suites, checkpoints=6, workers=1) is None
    other = replace(suites[0], generation=Generation(max_tokens=7))
    assert time_left_s(records, suites=[other], checkpoints=6, workers=1) is None
