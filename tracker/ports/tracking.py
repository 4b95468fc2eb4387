"""Where results and curves are written for people to look at."""

from collections.abc import Sequence
from typing import Protocol

from eval_jobs.types import Checkpoint, EvalRecord
from tracker.domain.records.tracking import Champion, TrackingItem
from tracker.domain.records.types import CurvePoint, Report


class Tracking(Protocol):
    """Writes results and curves where people look at them. Never loses, never doubles, never blocks the watcher."""

    def publish(self, record: EvalRecord, report: Report, left: Sequence[Checkpoint] = ()) -> None:
        """Queue a record with its verdicts for publication; one with the words that it had last changes nothing.

        `left` are the checkpoints of its run that training left behind: none of them is the newest any more.

        A record of the same plan that finished later, such as a repair, is published too, and so are other words on
        the same record: what they hold newly or otherwise is what people see from then on.
        """

    def publish_curves(self, checkpoint: Checkpoint, points: Sequence[CurvePoint]) -> None:
        """Queue curve points that were not queued before for this run."""

    def publish_sweep(self, record: EvalRecord) -> None:
        """Queue the result of a plan of a sweep for publication; a record that was queued before changes nothing."""

    def publish_champions(self, checkpoint: Checkpoint, champions: Sequence[Champion]) -> None:
        """Queue which checkpoints the run's aliases name, as known after `checkpoint`; as queued last: no-op."""

    def flush(self) -> int:
        """Send what is queued and return how many items still wait. A store that is down is not an error here."""

    def close(self) -> None:
        """Release connections. Calling it twice is harmless."""


class TrackingSink(Protocol):
    """The store behind an outbox. Sending an item again completes what was cut off before, and doubles nothing."""

    def send(self, item: TrackingItem) -> None:
        """Write all of `item`, in bounded time.

        Raises:
            TrackingUnreachable: the store does not answer; no other item would fare better now.
            StoreError: the store refuses this item; others may pass.
        """

    def close(self) -> None:
        """Release connections. Calling it twice is harmless."""
