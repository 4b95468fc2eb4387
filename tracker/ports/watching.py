"""Who watches a run, and what a watcher needs of the queue; `eval_jobs.ports` defines the queue's rules."""

from datetime import datetime
from typing import Protocol

from eval_jobs.ports import HoldRegistry, PlanQueue, QueueStatus, ResultQueue
from tracker.domain.checkpoints.watching import Leader


class Lead(Protocol):
    """The right to watch one run. One process at a time has it, until it releases it or ends in any way."""

    def take(self, now: datetime) -> bool:
        """Take the lead, or confirm it; return False if another process has it.

        A process that was disconnected from the database has lost the lead, and takes it again when it is free.

        Raises:
            StoreError: the database cannot be queried, so the leader is unknown.
            ConfigError: the name of another run in the database is ambiguous with a sub-folder of this run.
        """

    def leader(self) -> Leader | None:
        """Return the last leader, or None if there was none."""

    def is_led(self) -> bool:
        """Return whether any process leads now. Nothing is taken or written.

        Raises:
            StoreError: the database cannot be queried.
        """

    def release(self) -> None:
        """Release the lead. Calling it twice is harmless."""


class RequestQueue(PlanQueue, ResultQueue, QueueStatus, Protocol):
    """For callers that request evaluations: add plans, read their progress, collect results."""


class WatchedQueue(RequestQueue, HoldRegistry, Protocol):
    """For a watcher, which also reads which worker holds which plan."""
