"""Where results and curves are published."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from eval_jobs.types import Checkpoint, EvalRecord
from tracker.domain.records.tracking import NO_SERIES, Champion, IncidentKind, RejectedItem, TrackingItem, TrainerFacts
from tracker.domain.records.types import CurvePoint, Report


class Tracking(Protocol):
    """Publishes results and curves. Never loses or duplicates data, never blocks the watcher."""

    def publish(
        self, record: EvalRecord, report: Report, left: Sequence[Checkpoint] = (), series: Mapping[str, int] = NO_SERIES
    ) -> None:
        """Queue a record with its verdicts for publication. No-op if its verdicts are unchanged.

        `left` are the checkpoints of its run that a rewind discarded: none of them is the newest any more. `series` are
        the numbers of the series by benchmark: from 2 on, they are part of the names of its metrics.

        A record of the same plan that finished later, such as a repair, is published too, and so are changed
        verdicts of the same record: new or different values replace the published ones.
        """

    def publish_curves(self, checkpoint: Checkpoint, points: Sequence[CurvePoint]) -> None:
        """Queue curve points that were not queued before for this run; long curves are thinned."""

    def publish_live_curves(self, run_id: str, points: Sequence[CurvePoint], at: datetime) -> None:
        """Queue new points of a run that may have no checkpoint yet; `at`: now. They are never sent to a trainer's run.

        Points that were queued before are left out, also if they were rounded.
        """

    def publish_incidents(
        self, run_id: str, incidents: Sequence[str], at: datetime, kind: IncidentKind = IncidentKind.TRAINING
    ) -> None:
        """Queue the incidents of a run of one kind, in words. `at`: now.

        No-op if equal to the last ones, or if there has never been one.
        """

    def publish_facts(self, checkpoint: Checkpoint, facts: TrainerFacts) -> None:
        """Queue what the trainer left about its run. No-op if empty, or queued before for this run."""

    def publish_sweep(self, record: EvalRecord) -> None:
        """Queue the result of a sweep's plan for publication. No-op if the record was queued before."""

    def publish_champions(self, checkpoint: Checkpoint, champions: Sequence[Champion]) -> None:
        """Queue the checkpoints of the run's aliases, as known after `checkpoint`. No-op if equal to the last ones."""

    def follow(self) -> None:
        """Show runs as running from now on, until `close`: without this call, as finished. Not a trainer's own run."""

    def flush(self, wait_s: float = 60.0) -> int:
        """Send what is queued and return how many items still wait. An unreachable store is not an error here.

        A call waits at most `wait_s`; what is still being sent then is sent all the same, and nothing else meanwhile.

        Results of one checkpoint arrive in their order, and aliases after the results of their checkpoints. An item
        that the store rejects five times is set aside and no longer waits.
        """

    def set_aside(self) -> Sequence[RejectedItem]:
        """Return what was set aside and not replaced by a newer result since, oldest first."""

    def close(self) -> None:
        """Release connections. Calling it twice is harmless."""


class TrackingSink(Protocol):
    """The store behind an outbox. Sending an item again completes an interrupted attempt without duplicates."""

    def send(self, item: TrackingItem) -> None:
        """Write all of `item`, in bounded time.

        Raises:
            TrackingUnreachable: the store does not respond; other items would fail too.
            StoreError: the store rejects this item; others may succeed.
        """

    def follow(self) -> None:
        """As `Tracking.follow`."""

    def close(self) -> None:
        """Release connections. Calling it twice is harmless."""
