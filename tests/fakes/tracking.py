"""A tracking store in memory, and the sink that an outbox delivers to."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from eval_jobs.errors import StoreError, TrackingUnreachable
from eval_jobs.types import Checkpoint, EvalRecord
from tracker.domain.records.tracking import (
    NO_SERIES,
    Champion,
    IncidentKind,
    LiveItem,
    RejectedItem,
    TrackingItem,
    TrainerFacts,
)
from tracker.domain.records.types import CurvePoint, Report
from tracker.domain.verdicts.out_of_order import told_by_benchmark


class FakeTracking:
    """`tracker.ports.Tracking` in lists. While `is_down`, everything waits."""

    def __init__(self) -> None:
        self.records: list[tuple[EvalRecord, Report]] = []
        """What arrived, in order."""
        self.series: dict[str, Mapping[str, int]] = {}
        """Numbers of the series by plan."""
        self.points: list[CurvePoint] = []
        self.facts: list[TrainerFacts] = []
        self.incidents: list[tuple[str, ...]] = []
        self.losses: list[tuple[str, ...]] = []
        self.sweeps: list[EvalRecord] = []
        self.champions: list[dict[str, int]] = []
        """Step by alias, at every move."""
        self.rejected: list[RejectedItem] = []
        """What a test declares as set aside."""
        self.is_down = False
        self.is_closed = False
        self.is_followed = False
        self._waiting: list[Callable[[], None]] = []
        self._known: set[object] = set()
        self._said: dict[object, object] = {}
        """The last words on a record."""

    def publish(
        self,
        record: EvalRecord,
        report: Report,
        left: Sequence[Checkpoint] = (),  # noqa: ARG002
        series: Mapping[str, int] = NO_SERIES,
    ) -> None:
        key, words = (record.plan.id, record.finished_at), told_by_benchmark(report)
        if self._said.get(key) != words:
            self._said[key] = words
            self._waiting.append(lambda: self.records.append((record, report)))
            self.series[record.plan.id] = series

    def publish_curves(self, checkpoint: Checkpoint, points: Sequence[CurvePoint]) -> None:
        new = tuple(p for p in dict.fromkeys(points) if (checkpoint.run_id, p) not in self._known)
        self._known.update((checkpoint.run_id, p) for p in new)
        if new:
            self._waiting.append(lambda: self.points.extend(new))

    def publish_live_curves(self, run_id: str, points: Sequence[CurvePoint], at: datetime) -> None:  # noqa: ARG002
        new = tuple(p for p in dict.fromkeys(points) if (run_id, p) not in self._known)
        self._known.update((run_id, p) for p in new)
        if new:
            self._waiting.append(lambda: self.points.extend(new))

    def publish_incidents(
        self,
        run_id: str,
        incidents: Sequence[str],
        at: datetime,  # noqa: ARG002
        kind: IncidentKind = IncidentKind.TRAINING,
    ) -> None:
        if self._said.get((kind, run_id), ()) != tuple(incidents):
            self._said[kind, run_id] = tuple(incidents)
            told = self.losses if kind is IncidentKind.LOSS else self.incidents
            self._waiting.append(lambda: told.append(tuple(incidents)))

    def publish_facts(self, checkpoint: Checkpoint, facts: TrainerFacts) -> None:
        key = (checkpoint.run_id, facts.name, *facts.params.items(), *facts.tags.items())
        if facts != TrainerFacts() and key not in self._known:
            self._known.add(key)
            self._waiting.append(lambda: self.facts.append(facts))

    def publish_sweep(self, record: EvalRecord) -> None:
        key = ("sweep", record.plan.id, record.finished_at)
        if key not in self._known:
            self._known.add(key)
            self._waiting.append(lambda: self.sweeps.append(record))

    def publish_champions(self, checkpoint: Checkpoint, champions: Sequence[Champion]) -> None:
        champions = [c for c in champions if any(key[0] == c.plan_id for key in self._said if isinstance(key, tuple))]
        said = [(c.alias, c.checkpoint.digest, c.reason) for c in champions]
        if champions and self._said.get(("champions", checkpoint.run_id)) != said:
            self._said["champions", checkpoint.run_id] = said
            moved = {c.alias: c.checkpoint.step for c in champions}
            self._waiting.append(lambda: self.champions.append(moved))

    def flush(self, wait_s: float = 0.0) -> int:  # noqa: ARG002
        while self._waiting and not self.is_down:
            self._waiting.pop(0)()
        return len(self._waiting)

    def set_aside(self) -> Sequence[RejectedItem]:
        return self.rejected

    def follow(self) -> None:
        self.is_followed = True

    def close(self) -> None:
        self.is_closed = True


class FakeSink:
    """`tracker.ports.TrackingSink` that keeps one copy of each item, as an idempotent store does."""

    def __init__(self) -> None:
        self.items: list[TrackingItem] = []
        self.attempts = 0
        self.is_down = False
        self.refuses: set[int] = set()
        """Steps whose items are refused."""
        self.is_closed = False

    def send(self, item: TrackingItem) -> None:
        self.attempts += 1
        if self.is_down:
            raise TrackingUnreachable("the store does not answer", hint="start it")
        if not isinstance(item, LiveItem) and item.checkpoint.step in self.refuses:
            raise StoreError("the store refuses", hint="look at its log")
        if item not in self.items:
            self.items.append(item)

    def follow(self) -> None:
        """Show nothing."""

    def close(self) -> None:
        self.is_closed = True
