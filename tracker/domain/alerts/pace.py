"""When to send on a channel, and when to retry after a failed message. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from eval_jobs.backoff import Backoff
from eval_jobs.errors import ChannelRefused, ChannelUnreachable

BACKOFF = Backoff(first_s=5.0, longest_s=300.0)


@dataclass(frozen=True, kw_only=True)
class Retry:
    """What follows from a failed message."""

    at: datetime
    wait_s: float
    is_for_all: bool
    """Everything queued for the channel waits as long, so that any process sends it in order."""
    is_news: bool
    """Whether to log a warning: the problem is new, or the message was rejected."""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """State of one channel in this process."""

    repeat_s: float | None = None
    """Seconds after which firing alerts must be sent again; None: the service does not expire them."""
    repeated_at: datetime | None = None
    rests_from: datetime | None = None
    rests_until: datetime | None = None
    """Until then nothing is sent: the channel was unreachable at `rests_from`."""
    is_in_trouble: bool = False

    def rests(self, now: datetime) -> bool:
        """Return whether nothing is sent now. Robust against a clock that is set back."""
        if self.rests_from is None or self.rests_until is None:
            return False
        return self.rests_from <= now < self.rests_until

    def repeats(self, now: datetime) -> bool:
        """Return whether firing alerts must be sent again."""
        if self.repeat_s is None or self.rests(now):
            return False
        return self.repeated_at is None or not timedelta() <= now - self.repeated_at < timedelta(seconds=self.repeat_s)

    def is_asked(self, now: datetime, first_due_s: float | None) -> bool:
        """Return whether something is sent now; `first_due_s`: POSIX time of the first waiting alert, if any."""
        is_due = first_due_s is not None and first_due_s <= now.timestamp()
        return self.repeats(now) or (is_due and not self.rests(now))

    def after_failure(self, error: Exception, attempts: int, now: datetime) -> tuple[Pace, Retry]:
        """Return the state after the `attempts`-th failure of a message, and the retry."""
        asked_s = error.context.get("retry_after_s") if isinstance(error, ChannelUnreachable) else None
        wait_s = BACKOFF.wait_s(attempts, None if asked_s is None else float(asked_s))
        at, is_away = now + timedelta(seconds=wait_s), isinstance(error, ChannelUnreachable)
        is_news = not self.is_in_trouble or isinstance(error, ChannelRefused)
        after = replace(self, is_in_trouble=True)
        if is_away:
            after = replace(after, rests_from=now, rests_until=at)
        return after, Retry(at=at, wait_s=wait_s, is_for_all=is_away, is_news=is_news)
