"""Who watches a run."""

from datetime import datetime
from typing import Protocol

from tracker.domain.checkpoints.leading import Leader


class Lead(Protocol):
    """The right to watch one run. One process at a time has it, until it gives it up or ends, however it ends."""

    def take(self, now: datetime) -> bool:
        """Take the lead, or confirm it; False when another process has it.

        One that was cut off from the database has lost the lead, and takes it anew when it is free.

        Raises:
            StoreError: the database cannot be asked, and so nobody can say who leads.
            ConfigError: another run of the database has a name that cannot be told from one of this run's sub-folders.
        """

    def leader(self) -> Leader | None:
        """Return who led last, None when nobody ever did."""

    def release(self) -> None:
        """Let another process lead. Calling it twice is harmless."""
