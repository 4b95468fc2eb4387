from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from eval_jobs.errors import ConfigError
from eval_jobs.execute.worker.hours import Hours, Load, average_pct, hours_of
from eval_jobs.types import OnlyWhen

BERLIN = ZoneInfo("Europe/Berlin")


def hours(text: str, zone: str = "Europe/Berlin") -> Hours:
    found = hours_of(OnlyWhen(hours=text, time_zone=zone))
    assert found is not None
    return found


def berlin(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN).astimezone(UTC)


def test_a_window_over_midnight_is_open_on_both_sides_of_it_and_its_end_is_no_part_of_it() -> None:
    night, morning = hours("20:00-07:00"), hours("05:00-07:00")
    is_open = {"12:00": False, "19:59": False, "20:00": True, "23:59": True, "00:00": True}
    is_open |= {"06:59:59": True, "07:00:00": False, "07:00:01": False}
    assert {at: night.has(berlin(f"2026-06-10T{at}")) for at in is_open} == is_open
    at_the_end = [morning.has(berlin(f"2026-06-10T{at}")) for at in ("06:59:59", "07:00:00", "07:00:01")]
    assert at_the_end == [True, False, False]
    assert hours_of(OnlyWhen()) is None, "no hours are any hours"


def test_the_named_zone_decides_and_not_the_machines() -> None:
    at = datetime(2026, 6, 10, 19, 30, tzinfo=UTC)
    assert hours("20:00-07:00", "Europe/Berlin").has(at), "21:30 in Berlin"
    assert not hours("20:00-07:00", "UTC").has(at)
    assert hours("20:00-07:00", "Asia/Tokyo").has(at), "04:30 in Tokyo"


def test_in_summer_the_window_opens_an_hour_earlier_by_utc() -> None:
    assert hours("20:00-07:00").next_opening(berlin("2026-01-10T12:00")) == datetime(2026, 1, 10, 19, tzinfo=UTC)
    assert hours("20:00-07:00").next_opening(berlin("2026-06-10T12:00")) == datetime(2026, 6, 10, 18, tzinfo=UTC)


def test_hours_that_come_twice_in_autumn_are_open_twice() -> None:
    window = hours("02:15-02:45")  # on 2026-10-25 the clock goes from 03:00 back to 02:00
    first, second = datetime(2026, 10, 25, 0, 30, tzinfo=UTC), datetime(2026, 10, 25, 1, 30, tzinfo=UTC)
    assert window.has(first)
    assert not window.has(first + timedelta(minutes=30))
    assert window.has(second)
    assert window.next_opening(first + timedelta(minutes=20)) == datetime(2026, 10, 25, 1, 15, tzinfo=UTC)


def test_hours_that_spring_leaves_out_come_the_next_night() -> None:
    window = hours("02:15-02:45")  # on 2026-03-29 the clock goes from 02:00 to 03:00
    assert window.next_opening(berlin("2026-03-28T12:00")) == berlin("2026-03-30T02:15")


def test_a_window_that_begins_within_the_hour_that_spring_leaves_out_opens_when_the_clock_has_jumped() -> None:
    window = hours("02:30-07:00")
    assert window.next_opening(berlin("2026-03-28T12:00")) == datetime(2026, 3, 29, 1, 0, tzinfo=UTC), "03:00 there"


def test_half_a_minute_before_the_opening_it_is_closed() -> None:
    now = berlin("2026-06-10T19:59:30")
    assert not hours("20:00-07:00").has(now)
    assert hours("20:00-07:00").next_opening(now) == berlin("2026-06-10T20:00")


def test_hours_and_zones_that_cannot_be_read_are_refused() -> None:
    for text in ("20-07", "20:00", "20:00-24:30", "nights", "20:60-07:00", "20:00-07:00, 12:00-13:00"):
        with pytest.raises(ConfigError, match=r"invalid serve\.only_when\.hours") as caught:
            hours(text)
        assert "20:00-07:00" in caught.value.hint
    with pytest.raises(ConfigError, match="starts and ends at the same time"):
        hours("20:00-20:00")
    for zone in ("Berlin", "", "../../etc/passwd", "Europe"):
        with pytest.raises(ConfigError, match=r"unknown serve\.only_when\.time_zone"):
            hours("20:00-07:00", zone)


def loads(*busy_pct: float, every_s: float = 1.0) -> list[Load]:
    return [Load(at_s=100 + i * every_s, busy_pct=pct) for i, pct in enumerate(busy_pct)]


def test_too_short_a_look_at_the_gpu_says_nothing() -> None:
    assert average_pct([], now_s=100, over_s=5) is None
    assert average_pct(loads(0, 0, 0, 0), now_s=103, over_s=5) is None
    assert average_pct(loads(0, 0, 0, 0, 0, 0), now_s=105, over_s=5) == 0


def test_the_average_decides_and_not_a_moment_of_rest() -> None:
    assert average_pct(loads(90, 90, 0, 90, 90, 0), now_s=105, over_s=5) == 60
    assert average_pct(loads(0, 0, 18, 0, 0, 0), now_s=105, over_s=5) == 3


def test_what_was_long_ago_is_no_part_of_the_average() -> None:
    assert average_pct(loads(*[100] * 10, *[0] * 10), now_s=119, over_s=5) == 0


def test_a_gap_in_the_readings_is_no_rest() -> None:
    readings = [*loads(0), Load(at_s=200, busy_pct=0)]
    assert average_pct(readings, now_s=200, over_s=5) is None
