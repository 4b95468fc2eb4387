"""State of the sweeps of a run. A `Turn` is one sweep run: one execution of a sweep."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Protocol

from eval_jobs.types import EvalRecord
from tracker.domain.sweeps.types import TimetablePosition, Turn, TurnState


class Sweeps(Protocol):
    """The complete state of one run's sweeps. Safe for several processes; adding and appending are idempotent."""

    def take(self, holder: str, *, now: datetime, lease_until: datetime) -> bool:
        """Take or extend the lease for beginning sweep runs; return False while another holder has it.

        A lease that ends later than `lease_until` was taken before the clock was set back, and is invalid.
        """

    def release(self, holder: str) -> None:
        """Release the lease. No-op if another holder has it."""

    def look(self, sweep: str) -> TimetablePosition | None:
        """Return until when a sweep's timetable was followed; None: never."""

    def remember(self, sweep: str, look: TimetablePosition) -> None:
        """Store until when a sweep's timetable was followed."""

    def add(self, turn: Turn) -> bool:
        """Store a new sweep run; return False, without a change, if the sweep has one with the same due time."""

    def change(self, turn: Turn, *, was: TurnState) -> bool:
        """Store a new state of a sweep run; return False, without a change, if its state is no longer `was`."""

    def open_turns(self) -> tuple[Turn, ...]:
        """Return the sweep runs that are due or running, earliest due time first."""

    def turns(self, sweep: str) -> tuple[Turn, ...]:
        """Return all runs of a sweep, latest due time first."""

    def append(self, record: EvalRecord) -> None:
        """Store the result of a sweep's plan under its id; the same id again replaces it."""

    def answered(self, plan_ids: Collection[str]) -> frozenset[str]:
        """Return which of these plans have a result."""

    def results(self, plan_ids: Collection[str]) -> Mapping[str, EvalRecord]:
        """Return the existing results of these plans, by plan id."""
