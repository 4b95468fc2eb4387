"""What is known of the sweeps of a run."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Protocol

from eval_jobs.types import EvalRecord
from tracker.domain.sweeps.types import TimetablePosition, Turn, TurnState


class SweepLease(Protocol):
    """The right to begin the turns of one run's sweeps. Safe for several processes."""

    def take(self, holder: str, *, now: datetime, lease_until: datetime) -> bool:
        """Take or prolong the right to begin turns; False while another holder's lease lasts.

        A lease that ends later than `lease_until` was given before the clock was set back, and does not last.
        """

    def release(self, holder: str) -> None:
        """Give that right up. Not this holder's: no-op."""


class TurnStore(Protocol):
    """The turns of one run's sweeps. Safe for several processes; adding is idempotent."""

    def look(self, sweep: str) -> TimetablePosition | None:
        """Return until when a sweep's timetable was followed, None: it never was."""

    def remember(self, sweep: str, look: TimetablePosition) -> None:
        """Store until when a sweep's timetable was followed."""

    def add(self, turn: Turn) -> bool:
        """Store a turn that is new; False and nothing is done when its sweep has one that was due at that time."""

    def change(self, turn: Turn, *, was: TurnState) -> bool:
        """Store what became of a turn; False and nothing is done when its state is not `was` any more."""

    def open_turns(self) -> tuple[Turn, ...]:
        """Return the turns that are due or running, the one that was due first before the others."""

    def turns(self, sweep: str) -> tuple[Turn, ...]:
        """Return all turns of a sweep, the one that was due last first."""


class SweepResults(Protocol):
    """What came of the plans of sweeps. Appending is idempotent."""

    def append(self, record: EvalRecord) -> None:
        """Store a result under its plan id; the same id again replaces it."""

    def answered(self, plan_ids: Collection[str]) -> frozenset[str]:
        """Return which of these plans have a result."""

    def results(self, plan_ids: Collection[str]) -> Mapping[str, EvalRecord]:
        """Return the results that there are, by plan id."""


class Sweeps(SweepLease, TurnStore, SweepResults, Protocol):
    """Everything that is known of one run's sweeps."""
