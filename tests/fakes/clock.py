"""A clock that stands still until it is told to move; sleeping moves it."""

from datetime import UTC, datetime, timedelta

from eval_jobs.execute.interrupts import Interrupts
from eval_jobs.execute.worker.main import IDLE_S


class FakeClock:
    """`eval_jobs.ports.Clock` without waiting. `slept` holds every wait that was asked for, in seconds."""

    def __init__(self, now: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = now
        self._monotonic_s = 0.0
        self.slept: list[float] = []

    def now(self) -> datetime:
        return self._now

    def monotonic_s(self) -> float:
        return self._monotonic_s

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.advance(max(0.0, seconds))

    def advance(self, seconds: float) -> None:
        self.jump(seconds)
        self._monotonic_s += max(0.0, seconds)

    def jump(self, seconds: float) -> None:
        """Somebody sets the time of day; no time passes."""
        self._now += timedelta(seconds=seconds)


class WorkerClock(FakeClock):
    """Stops the worker when it would wait for work."""

    interrupts: Interrupts

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if seconds == IDLE_S:
            self.interrupts.stop()
