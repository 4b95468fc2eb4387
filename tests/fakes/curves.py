"""Training curves in memory."""

from collections.abc import Iterable

from eval_jobs.types import Checkpoint
from tracker.domain.records.tracking import TrainerFacts
from tracker.domain.records.types import CurvePoint


class FakeCurves:
    """`tracker.ports.CurveReader` that knows the points it was given."""

    def __init__(self, points: Iterable[CurvePoint] = (), *, last_step: int | None = None) -> None:
        self._last_step = last_step
        self._points = tuple(sorted(points, key=lambda p: (p.step, p.key)))

    def read(self, checkpoint: Checkpoint) -> tuple[CurvePoint, ...]:
        return tuple(p for p in self._points if p.step <= checkpoint.step)

    def facts(self, checkpoint: Checkpoint) -> TrainerFacts:  # noqa: ARG002 - part of the port
        return TrainerFacts(params={"seed": "1"})

    def last_step(self, checkpoint: Checkpoint) -> int | None:
        return self._last_step if self.read(checkpoint) else None
