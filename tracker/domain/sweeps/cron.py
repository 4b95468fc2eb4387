"""Timetables of sweeps: when a sweep run is due. Pure.

When clocks change, times are those of Debian's cron (`cronsim`): one that does not exist moves to the first minute that
does, one that exists twice comes once. Timetables of every few minutes or hours continue unchanged.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from tracker.domain.records.display import count_text
from tracker.domain.sweeps.types import Missed, Timetable, TimetablePosition, Turn, TurnState

LATE_S = 600.0
"""Seconds after which a sweep run counts as missed: no watcher was running when it was due."""
COUNTED_DAYS = 40
"""Period over which missed times are counted, in days."""
LONGEST_DAYS = 60 * 366
"""Upper limit of the time between two runs of a sweep, in days."""


def check_timetable(timetable: Timetable) -> None:
    """Check that `timetable` is valid.

    Raises:
        ValueError: it is no crontab line of five fields, never matches, or the time zone is unknown.
    """
    try:
        ZoneInfo(timetable.time_zone)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(f"invalid time zone {timetable.time_zone!r} (expected one such as `Europe/Berlin`)") from error
    if len(timetable.cron.split()) != 5:
        raise ValueError(
            f"invalid cron {timetable.cron!r} (expected five fields, such as `0 2 * * *` for daily at 02:00)"
        )
    try:
        comes = next_time(timetable, datetime(2026, 1, 1, tzinfo=UTC)) is not None
    except CronSimError as error:
        raise ValueError(f"invalid cron {timetable.cron!r}: {error}") from error
    if not comes:
        raise ValueError(f"invalid cron {timetable.cron!r}: it never matches")


def next_time(timetable: Timetable, after: datetime) -> datetime | None:
    """Return the first time after `after`, in UTC; None if there is none within 50 years."""
    return next((time for time in _forward(timetable, after) if time > after), None)


def due_between(timetable: Timetable, after: datetime, until: datetime) -> tuple[datetime, ...]:
    """Return the times after `after` and up to `until`, the newest first; of a long period the last `COUNTED_DAYS`."""
    for days in (COUNTED_DAYS, 10 * COUNTED_DAYS, LONGEST_DAYS):
        start = max(after, until - timedelta(days=days))
        found = tuple(takewhile(lambda time: time <= until, _forward(timetable, start)))
        times = tuple(dict.fromkeys(time for time in reversed(found) if time > start))
        if times or start == after:
            return times
    return ()


def look_of(timetable: Timetable, until: datetime) -> TimetablePosition:
    """Return the position of `timetable` at `until`."""
    return TimetablePosition(until=until, timetable=f"{timetable.cron} {timetable.time_zone}")


def started_look(timetable: Timetable, known: TimetablePosition | None, now: datetime) -> TimetablePosition:
    """Return the position from which to continue `timetable`: `now` if it is new or has changed.

    Also `now` if the clock was set back: what was due in between is unknown, and no sweep run may be repeated.
    """
    fresh = look_of(timetable, now)
    if known is None or known.timetable != fresh.timetable or known.until > now:
        return fresh
    return known


def turn_due(name: str, timetable: Timetable, *, look: TimetablePosition, now: datetime, waits: bool) -> Turn | None:
    """Return the sweep run that is due, as pending or as skipped; None: nothing was due since `look`.

    `waits`: an earlier run of the sweep has not started yet.
    """
    times = due_between(timetable, look.until, now)
    if not times:
        return None
    turn = Turn(sweep=name, due_at=times[0], missed=len(times) - 1)
    reason = ""
    if waits:
        reason = "the previous sweep run was still pending"
    elif timetable.missed is Missed.SKIP and (now - times[0]).total_seconds() > LATE_S:
        reason = f"no watcher was running when it was due ({count_text(len(times), 'sweep run')} missed)"
    if not reason:
        return turn
    return replace(turn, state=TurnState.SKIPPED, note=reason, ended_at=now)


def _forward(timetable: Timetable, after: datetime) -> Iterator[datetime]:
    local = after.astimezone(ZoneInfo(timetable.time_zone))
    return (time.astimezone(UTC) for time in CronSim(timetable.cron, local))
