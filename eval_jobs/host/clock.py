"""The real clock: the only place that reads the time or waits for it to pass."""

import time
from datetime import UTC, datetime


class SystemClock:
    """`eval_jobs.ports.Clock` on this machine's clock."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return datetime.now(UTC)

    def monotonic_s(self) -> float:
        """Return seconds since some moment, whatever happens to the time of day."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait `seconds`."""
        time.sleep(max(0.0, seconds))  # noqa: TID251 - this is the adapter that the rule points to
