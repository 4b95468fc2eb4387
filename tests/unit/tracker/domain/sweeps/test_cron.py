"""When sweeps are due: clocks that are put forward and back, missed times, and a clock that somebody sets."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.domain.sweeps.cron import (
    LATE_S,
    check_timetable,
    due_between,
    look_of,
    next_time,
    started_look,
    turn_due,
)
from tracker.domain.sweeps.types import Missed, Timetable, TimetablePosition, TurnState

BERLIN = "Europe/Berlin"
SPRING = datetime(2026, 3, 29, tzinfo=UTC)
"""At 01:00 UTC clocks in Berlin go from 02:00 to 03:00."""
AUTUMN = datetime(2026, 10, 25, tzinfo=UTC)
"""At 01:00 UTC clocks in Berlin go from 03:00 back to 02:00."""
NIGHTLY = Timetable(cron="0 2 * * *")


def at(cron: str, zone: str, day: datetime) -> list[str]:
    found = due_between(Timetable(cron=cron, time_zone=zone), day - timedelta(hours=2), day + timedelta(hours=22))
    return [f"{time:%H:%M}" for time in reversed(found)]


def test_a_time_that_does_not_exist_comes_with_the_first_minute_that_does() -> None:
    assert at("30 2 * * *", BERLIN, SPRING) == ["01:00"]
    assert at("30 2 * * *", BERLIN, SPRING + timedelta(days=1)) == ["00:30"]


def test_two_times_that_do_not_exist_come_once() -> None:
    assert at("0,30 2 * * *", BERLIN, SPRING) == ["01:00"]


def test_a_time_that_exists_twice_comes_once() -> None:
    assert at("30 2 * * *", BERLIN, AUTUMN) == ["00:30"]


def test_what_comes_every_half_hour_just_goes_on() -> None:
    for day, hours in ((SPRING, 22 + 2), (AUTUMN, 22 + 2)):
        found = at("*/30 * * * *", BERLIN, day)
        assert len(found) == 2 * hours
        times = due_between(Timetable(cron="*/30 * * * *", time_zone=BERLIN), day, day + timedelta(hours=5))
        assert {a - b for a, b in pairwise(times)} == {timedelta(minutes=30)}


@given(
    cron=st.sampled_from(["30 2 * * *", "0,30 2 * * *", "*/15 * * * *", "15 */2 * * *", "30 1,2,3 * * *", "0 0 1 * *"]),
    zone=st.sampled_from([BERLIN, "America/New_York", "Australia/Lord_Howe", "UTC", "Asia/Kolkata"]),
    start=st.sampled_from([SPRING, AUTUMN, datetime(2026, 3, 8, 7, tzinfo=UTC), datetime(2026, 4, 4, 15, tzinfo=UTC)]),
    cuts=st.lists(st.integers(min_value=0, max_value=4 * 86_400), max_size=6),
)
def test_however_often_one_looks_each_time_comes_once(cron: str, zone: str, start: datetime, cuts: list[int]) -> None:
    timetable, first = Timetable(cron=cron, time_zone=zone), start - timedelta(days=2)
    looks = [first, *(first + timedelta(seconds=cut) for cut in sorted(cuts)), first + timedelta(days=4)]
    one_by_one = [time for a, b in pairwise(looks) for time in reversed(due_between(timetable, a, b))]
    assert one_by_one == list(reversed(due_between(timetable, first, looks[-1])))
    time, walked = first, []
    while (time := next_time(timetable, time) or looks[-1]) <= looks[-1] and time not in walked:
        walked.append(time)
    assert [t for t in walked if t < looks[-1]] == [t for t in one_by_one if t < looks[-1]]


def test_missed_times_are_one_turn_that_knows_how_many_it_stands_for() -> None:
    now = datetime(2026, 11, 22, 7, tzinfo=UTC)
    turn = turn_due("n", NIGHTLY, look=look_of(NIGHTLY, now - timedelta(days=5)), now=now, waits=False)
    assert turn is not None
    assert (turn.state, turn.due_at, turn.missed) == (TurnState.DUE, now.replace(hour=2), 4)


def test_missed_times_are_skipped_where_that_is_the_policy_and_what_is_only_late_is_not_missed() -> None:
    skipping = replace(NIGHTLY, missed=Missed.SKIP)
    due = datetime(2026, 11, 22, 2, tzinfo=UTC)
    look = look_of(skipping, due - timedelta(days=2, hours=1))
    late, missed = (
        turn_due("n", skipping, look=look, now=due + timedelta(seconds=after_s), waits=False)
        for after_s in (LATE_S, LATE_S + 1)
    )
    assert late is not None
    assert missed is not None
    assert (late.state, late.due_at, missed.state, missed.due_at) == (TurnState.DUE, due, TurnState.SKIPPED, due)
    assert missed.note == "no watcher was running when it was due (3 sweep runs missed)"
    assert missed.ended_at is not None


def test_a_time_that_comes_while_the_turn_before_still_waits_is_skipped() -> None:
    now = datetime(2026, 11, 22, 2, tzinfo=UTC)
    turn = turn_due("n", NIGHTLY, look=look_of(NIGHTLY, now - timedelta(hours=1)), now=now, waits=True)
    assert turn is not None
    assert (turn.state, turn.note) == (TurnState.SKIPPED, "the previous sweep run was still pending")


def test_nothing_is_due_before_its_time_and_a_new_timetable_has_missed_nothing() -> None:
    now = datetime(2026, 11, 22, 1, 59, 59, tzinfo=UTC)
    look = started_look(NIGHTLY, None, now)
    assert look.until == now
    assert turn_due("n", NIGHTLY, look=look, now=now, waits=False) is None
    old = look_of(NIGHTLY, now - timedelta(days=300))
    assert started_look(NIGHTLY, old, now) == old
    every_minute = replace(NIGHTLY, cron="* * * * *")
    assert started_look(every_minute, old, now).until == now
    assert started_look(replace(NIGHTLY, time_zone=BERLIN), old, now).until == now


def test_a_clock_that_was_a_year_ahead_stops_no_sweep_when_it_is_set_right() -> None:
    now = datetime(2026, 11, 22, 1, tzinfo=UTC)
    ahead = TimetablePosition(until=now + timedelta(days=365), timetable="0 2 * * * UTC")
    look = started_look(NIGHTLY, ahead, now)
    turn = turn_due("n", NIGHTLY, look=look, now=now + timedelta(hours=1), waits=False)
    assert turn is not None
    assert turn.due_at == now + timedelta(hours=1)


def test_of_a_long_time_without_anybody_the_newest_time_is_found_at_once() -> None:
    now = datetime(2026, 11, 22, 7, tzinfo=UTC)
    found = due_between(Timetable(cron="* * * * *"), now - timedelta(days=4000), now)
    assert found[0] == now
    rare = due_between(Timetable(cron="0 0 29 2 *"), now - timedelta(days=10_000), now)
    assert rare[0] == datetime(2024, 2, 29, tzinfo=UTC)


@pytest.mark.parametrize(
    ("cron", "zone", "word"),
    [
        ("* * * *", "UTC", "five fields"),
        ("0 0 2 * * *", "UTC", "five fields"),
        ("61 * * * *", "UTC", "invalid cron .*: Bad minute"),
        ("0 0 30 2 *", "UTC", "30 2"),
        ("0 2 * * *", "Mars/Olympus", "invalid time zone"),
        ("0 2 * * *", "../etc/passwd", "invalid time zone"),
        ("0 2 * * *", "", "invalid time zone"),
    ],
)
def test_a_timetable_that_cannot_be_followed_is_refused(cron: str, zone: str, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        check_timetable(Timetable(cron=cron, time_zone=zone))
