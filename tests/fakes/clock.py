"""A clock that stands still until it is told to move; sleeping moves it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class FakeClock:
    """`eval_jobs.ports.Clock` without waiting. `slept` holds every wait that was asked for, in seconds."""

    def __init__(self, now: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = now
        self.slept: list[float] = []

    def now(self) -> datetime:
        return self._now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.advance(max(0.0, seconds))

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
