"""The real clock, the adapter of `eval_jobs.ports.Clock`."""

import time
from datetime import UTC, datetime


class SystemClock:
    """`eval_jobs.ports.Clock` on this machine's clock."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return datetime.now(UTC)

    def monotonic_s(self) -> float:
        """Return seconds of a clock that is independent of changes to the time of day."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait `seconds`."""
        time.sleep(max(0.0, seconds))  # noqa: TID251 - this is the adapter that the rule points to
