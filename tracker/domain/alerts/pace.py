"""When a channel is asked, and when again after it did not take a message. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from eval_jobs.backoff import Backoff
from eval_jobs.errors import ChannelRefused, ChannelUnreachable

BACKOFF = Backoff(first_s=5.0, longest_s=300.0)


@dataclass(frozen=True, kw_only=True)
class Retry:
    """What follows from a message that was not taken."""

    at: datetime
    wait_s: float
    is_for_all: bool
    """All that waits for the channel waits as long, so that it is told in order by whoever comes next."""
    is_news: bool
    """People do not know of this trouble yet."""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """What a process knows of one channel."""

    repeat_s: float | None = None
    """Seconds after which the service must hear again what is firing; None: it does not forget."""
    repeated_at: datetime | None = None
    rests_from: datetime | None = None
    rests_until: datetime | None = None
    """It was away a moment ago: nothing else would fare better now."""
    is_in_trouble: bool = False

    def rests(self, now: datetime) -> bool:
        """Say whether nothing is asked of it now; a clock may be set back."""
        if self.rests_from is None or self.rests_until is None:
            return False
        return self.rests_from <= now < self.rests_until

    def repeats(self, now: datetime) -> bool:
        """Say whether the service must hear again what is firing."""
        if self.repeat_s is None or self.rests(now):
            return False
        return self.repeated_at is None or not timedelta() <= now - self.repeated_at < timedelta(seconds=self.repeat_s)

    def is_asked(self, now: datetime, first_due_s: float | None) -> bool:
        """Say whether it is asked for something now.

        Args:
            now: the current time.
            first_due_s: POSIX time of the first that waits for it; None: nothing does.
        """
        is_due = first_due_s is not None and first_due_s <= now.timestamp()
        return self.repeats(now) or (is_due and not self.rests(now))

    def after_failure(self, error: Exception, attempts: int, now: datetime) -> tuple[Pace, Retry]:
        """Return what is known after a message was not taken, the `attempts`-th time."""
        asked_s = error.context.get("retry_after_s") if isinstance(error, ChannelUnreachable) else None
        wait_s = BACKOFF.wait_s(attempts, None if asked_s is None else float(asked_s))
        at, is_away = now + timedelta(seconds=wait_s), isinstance(error, ChannelUnreachable)
        is_news = not self.is_in_trouble or isinstance(error, ChannelRefused)
        after = replace(self, is_in_trouble=True)
        if is_away:
            after = replace(after, rests_from=now, rests_until=at)
        return after, Retry(at=at, wait_s=wait_s, is_for_all=is_away, is_news=is_news)
