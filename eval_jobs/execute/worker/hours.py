"""Conditions for a worker to begin with a checkpoint: hours of the day and GPU utilization. Pure.

Hours are local wall-clock time. When the clock is set back in autumn, they occur twice; hours that it skips in spring
do not occur that night. Only the start is restricted: a plan that runs when the hours end continues.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from eval_jobs.errors import ConfigError
from eval_jobs.types import OnlyWhen

SEARCHED_DAYS = 3
"""Search range for the next opening: a clock change may remove the hours of one day, but not of the next."""
NEEDED_LOADS = 3
"""Minimum number of readings: a GPU is idle for moments in every training step."""

_HOURS = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)\s*-\s*([01]?\d|2[0-3]):([0-5]\d)")


@dataclass(frozen=True, kw_only=True)
class Hours:
    """Hours of every day, from `start` to `end` (exclusive); across midnight if `end` is smaller."""

    start: time
    end: time
    zone: ZoneInfo

    def has(self, now: datetime) -> bool:
        """Return whether `now`, timezone-aware, is within these hours in their time zone."""
        at = now.astimezone(self.zone).time()
        if self.start < self.end:
            return self.start <= at < self.end
        return at >= self.start or at < self.end

    def next_opening(self, now: datetime) -> datetime | None:
        """Return the first whole minute after `now` within these hours, in UTC; None: not within `SEARCHED_DAYS`."""
        minute = now.astimezone(UTC).replace(second=0, microsecond=0)
        later = (minute + timedelta(minutes=number + 1) for number in range(SEARCHED_DAYS * 24 * 60))
        return next(filter(self.has, later), None)


@dataclass(frozen=True, kw_only=True)
class Load:
    """Utilization of the busiest GPU at one moment."""

    at_s: float
    """Monotonic time, in seconds."""
    busy_pct: float


def hours_of(only_when: OnlyWhen) -> Hours | None:
    """Return the configured hours; None: any time is allowed.

    Raises:
        ConfigError: they are invalid or empty, or the time zone is unknown on this machine.
    """
    if not only_when.hours:
        return None
    found = _HOURS.fullmatch(only_when.hours.strip())
    if found is None:
        raise ConfigError(f"invalid serve.only_when.hours {only_when.hours!r}", hint='write it as "20:00-07:00"')
    hour, minute, end_hour, end_minute = (int(number) for number in found.groups())
    start, end = time(hour, minute), time(end_hour, end_minute)
    if start == end:
        raise ConfigError(
            f"serve.only_when.hours starts and ends at the same time: {only_when.hours}", hint="remove it"
        )
    return Hours(start=start, end=end, zone=_zone(only_when.time_zone))


def average_pct(loads: Sequence[Load], *, now_s: float, over_s: float) -> float | None:
    """Return the mean of the last `over_s` seconds; None while the readings cover less time or are too few.

    `loads`: in order of time; `now_s`: current time on their clock.
    """
    if not loads or now_s - loads[0].at_s < over_s:
        return None
    recent = [load.busy_pct for load in loads if now_s - load.at_s <= over_s]
    if len(recent) >= NEEDED_LOADS:
        return sum(recent) / len(recent)
    return None


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigError(
            f"unknown serve.only_when.time_zone on this machine: {name!r}",
            hint='use a name such as "Europe/Berlin"; if the time zone database is missing, run `pip install tzdata`',
        ) from error
