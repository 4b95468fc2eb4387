"""The search for the step at which something was lost: right wherever that is, and cheap."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.domain.compare.bisection import Search, most_evaluations


def searched(scores: dict[int, float], looked: set[int]) -> tuple[Search, int]:
    """Search among the steps of `scores`, of which `looked` are evaluated; return the end and the evaluations."""
    looks = {step: scores[step] for step in looked}
    count = 0
    while True:
        search = Search(steps=tuple(sorted(scores)), looks=dict(looks))
        step = search.next_step()
        if step is None:
            return search, count
        assert step not in looks
        looks[step] = scores[step]
        count += 1


@given(st.integers(2, 400), st.data())
def test_a_clean_loss_is_found_wherever_it_is_with_few_evaluations(n: int, data: st.DataObject) -> None:
    onset = data.draw(st.integers(1, n - 1))
    scores = {100 * i: 0.7 if i < onset else 0.4 for i in range(n)}
    search, count = searched(scores, {0, 100 * (n - 1)})
    border = search.border()
    assert (border.good, border.bad) == (100 * (onset - 1), 100 * onset)
    assert border.odd_steps == ()
    assert count <= most_evaluations(n - 2) <= np.ceil(np.log2(n)) + 3


@given(st.integers(3, 200), st.data())
def test_what_is_evaluated_already_costs_nothing(n: int, data: st.DataObject) -> None:
    onset = data.draw(st.integers(1, n - 1))
    known = data.draw(st.sets(st.integers(0, n - 1)))
    scores = {i: 0.7 if i < onset else 0.4 for i in range(n)}
    search, count = searched(scores, {0, n - 1, *known})
    assert (search.border().good, search.border().bad) == (onset - 1, onset)
    assert count <= most_evaluations(n - 2)
    assert searched(scores, set(scores))[1] == 0


@given(st.integers(8, 100), st.integers(0, 10_000), st.data())
def test_noise_of_a_tenth_of_the_loss_moves_nothing(n: int, seed: int, data: st.DataObject) -> None:
    onset = data.draw(st.integers(2, n - 2))
    noise = np.random.default_rng(seed).normal(0, 0.02, n)
    scores = {i: (0.7 if i < onset else 0.5) + float(noise[i]) for i in range(n)}
    border = searched(scores, {0, n - 1})[0].border()
    assert (border.good, border.bad) == (onset - 1, onset)


def test_two_neighbours_of_the_border_are_looked_at_so_that_one_odd_checkpoint_is_no_loss() -> None:
    scores = dict.fromkeys(range(16), 0.7) | dict.fromkeys(range(12, 16), 0.4) | {7: 0.4}
    border = searched(scores, {0, 15})[0].border()
    assert (border.good, border.bad) == (11, 12)
    assert border.odd_steps == (7,)


def test_a_loss_that_comes_back_is_said_to_be_no_single_step() -> None:
    scores = dict.fromkeys(range(4), 0.7) | dict.fromkeys(range(4, 8), 0.4) | dict.fromkeys(range(8, 12), 0.7)
    scores |= dict.fromkeys(range(12, 16), 0.4)
    border = searched(scores, set(scores))[0].border()
    assert border.odd_steps


@given(st.lists(st.floats(0, 1), min_size=2, max_size=40))
def test_there_is_always_an_end(values: list[float]) -> None:
    values[0], values[-1] = 1.0, 0.0
    search, count = searched(dict(enumerate(values)), {0, len(values) - 1})
    border = search.border()
    assert border.good < border.bad
    assert count <= len(values) - 2


@pytest.mark.parametrize(("between", "most"), [(0, 2), (1, 3), (2, 4), (3, 4), (4, 5), (1000, 12)])
def test_the_most_that_a_search_costs(between: int, most: int) -> None:
    assert most_evaluations(between) == most
