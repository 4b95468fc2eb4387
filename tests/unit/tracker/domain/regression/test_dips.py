"""How long dips last, and how long the next ones may."""

import numpy as np
import pytest

from tracker.domain.regression.dips import FIRST_DIP, windows_of

K, T = 6, 60


def means(*starts: int, depth: float = 0.04, keeps: float = 0.6) -> np.ndarray:
    """Return K benchmarks with a noise of half a point; a dip shrinks by `keeps` at each checkpoint."""
    found = 0.6 + 0.005 * np.random.default_rng(3).normal(size=(K, T))
    for start in starts:
        age = np.arange(T) - start
        found -= np.where(age >= 0, depth * keeps ** np.maximum(age, 0), 0.0)
    return found


def test_the_first_dip_may_last_some_checkpoints_and_later_ones_as_long_as_the_earlier() -> None:
    first, second = windows_of(means(20, 40), (20, 40))
    assert (first.start, first.allowed) == (20, FIRST_DIP)
    assert 3 <= first.lasted <= 10
    assert second.allowed == first.lasted


def test_without_a_dip_at_the_first_none_is_expected_at_the_second() -> None:
    first, second = windows_of(means(40), (20, 40))
    assert first.lasted == 0
    assert second.allowed == 2


def test_a_loss_that_lasts_is_not_waited_for_longer() -> None:
    first, second = windows_of(means(20, keeps=1.0), (20, 40))
    assert first.lasted == FIRST_DIP
    assert second.allowed == FIRST_DIP


@pytest.mark.parametrize("later", [3, 7])
def test_a_fall_that_begins_some_checkpoints_after_a_disruption_is_not_its_dip(later: int) -> None:
    assert windows_of(means(20 + later), (20,))[0].lasted == 0


def test_constant_scores_and_too_short_a_past_show_no_dip() -> None:
    assert windows_of(np.full((2, 10), 0.5), (5,))[0].lasted == 0
    assert windows_of(means(2), (2,))[0].lasted == 0
