"""How trainers save: whatever the pattern, nobody is called for one that lives, and a dead one is told in time."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import pytest

from tests.unit.tracker.app.stall_bench import FIRING, RESOLVED, Tower, checkpoint, seconds

MINUTE, HOUR = 60.0, 3600.0
PAUSES = [*[10 * MINUTE] * 20, 1.5 * HOUR] * 6
"""It saves every ten minutes and evaluates itself for an hour and a half after every twentieth time."""
DENSE_THEN_SPARSE = [*[30.0] * 20, *[50 * MINUTE] * 10]
NIGHT = [*[10 * MINUTE] * 20, 10 * HOUR, *[10 * MINUTE] * 15]
"""Its machine was down for a night."""
NIGHTS = NIGHT[:21] * 2 + NIGHT[21:]


def watched(intervals_s: Sequence[float], *, logs: bool = False) -> Tower:
    """Watch a trainer that saves after these times, to its last checkpoint."""
    tower = Tower(logs_until_s=sum(intervals_s) if logs else 0.0)
    for number, at_s in enumerate(accumulate(intervals_s)):
        tower.look(at_s, replace(checkpoint(number), ready_at=seconds(at_s)))
    return tower


def told_after_s(tower: Tower) -> float:
    """Return how long nothing comes any more until somebody is told of it."""
    assert tower.looked_s is not None
    before, last_s = len(tower.told()), tower.looked_s
    while len(tower.told()) == before:
        tower.look(tower.looked_s + MINUTE)
        assert tower.looked_s < last_s + 100 * HOUR
    return tower.looked_s - last_s


@pytest.mark.parametrize(
    ("intervals_s", "calls", "dead_after_s"),
    [
        ([10 * MINUTE] * 30, 0, 41 * MINUTE),
        ([30.0 * 2**n for n in range(10)], 0, 2.6 * 30 * 2**9),  # less and less, by powers of two
        ([*[10 * MINUTE] * 4, 1.5 * HOUR] * 8, 1, 226 * MINUTE),  # the first pause is a surprise
        (PAUSES, 2, 226 * MINUTE),  # and so is the second, when ten others lie between: then it is a habit
        (DENSE_THEN_SPARSE, 1, 201 * MINUTE),
        (NIGHT, 1, 41 * MINUTE),  # and nobody waits for longer because of it
        (NIGHTS, 2, 41 * MINUTE),
    ],
)
def test_of_a_trainer_without_logs_a_surprise_is_told_and_a_habit_is_not(
    intervals_s: list[float], calls: int, dead_after_s: float
) -> None:
    tower = watched(intervals_s)
    assert [state for _, state, _ in tower.told()] == [FIRING, RESOLVED] * calls
    assert told_after_s(tower) <= dead_after_s


@pytest.mark.parametrize("intervals_s", [PAUSES, DENSE_THEN_SPARSE, [*[10 * MINUTE] * 4, 1.5 * HOUR] * 8])
def test_a_trainer_that_logs_is_not_called_late_and_is_told_as_soon_when_it_is_dead(intervals_s: list[float]) -> None:
    tower = watched(intervals_s, logs=True)
    assert tower.told() == []
    assert told_after_s(tower) == told_after_s(watched(intervals_s))


def test_a_trainer_that_logs_for_ever_and_saves_no_more_is_told() -> None:
    tower = watched([10 * MINUTE] * 20, logs=True)
    tower.logs_until_s = 1e9
    assert told_after_s(tower) == pytest.approx(40 * 10 * MINUTE, abs=MINUTE)
    assert "training still writes logs, but saves less often or elsewhere, or fails to save" in (
        tower.alerting.alerts[-1].message
    )
    silent = watched([10 * MINUTE] * 20)
    told_after_s(silent)
    assert "training may have hung or ended, or may save less often or elsewhere" in silent.alerting.alerts[-1].message
