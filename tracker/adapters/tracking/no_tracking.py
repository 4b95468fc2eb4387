"""`tracking.enabled = false`: results stay in the tracker's own history."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from eval_jobs.types import Checkpoint, EvalRecord
from tracker.domain.records.tracking import NO_SERIES, Champion, IncidentKind, RejectedItem, TrainerFacts
from tracker.domain.records.types import CurvePoint, Report


class NoTracking:
    """`tracker.ports.Tracking` that keeps nothing."""

    def publish(
        self, record: EvalRecord, report: Report, left: Sequence[Checkpoint] = (), series: Mapping[str, int] = NO_SERIES
    ) -> None:
        """Drop the record."""

    def publish_curves(self, checkpoint: Checkpoint, points: Sequence[CurvePoint]) -> None:
        """Drop the points."""

    def publish_live_curves(self, run_id: str, points: Sequence[CurvePoint], at: datetime) -> None:
        """Drop the points."""

    def publish_incidents(
        self, run_id: str, incidents: Sequence[str], at: datetime, kind: IncidentKind = IncidentKind.TRAINING
    ) -> None:
        """Drop the incidents."""

    def publish_facts(self, checkpoint: Checkpoint, facts: TrainerFacts) -> None:
        """Drop the facts."""

    def publish_sweep(self, record: EvalRecord) -> None:
        """Drop the record."""

    def publish_champions(self, checkpoint: Checkpoint, champions: Sequence[Champion]) -> None:
        """Drop the aliases."""

    def follow(self) -> None:
        """Do nothing."""

    def flush(self, wait_s: float = 0.0) -> int:  # noqa: ARG002 - part of the port
        """Return 0: nothing waits."""
        return 0

    def set_aside(self) -> tuple[RejectedItem, ...]:
        """Return nothing."""
        return ()

    def close(self) -> None:
        """Do nothing."""
