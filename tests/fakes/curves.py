"""Training curves in memory."""

from __future__ import annotations

from collections.abc import Iterable

from eval_jobs.types import Checkpoint
from tracker.domain.types import CurvePoint


class FakeCurves:
    """`tracker.ports.CurveReader` that knows the points it was given."""

    def __init__(self, points: Iterable[CurvePoint] = ()) -> None:
        self._points = tuple(sorted(points, key=lambda p: (p.step, p.key)))

    def read(self, checkpoint: Checkpoint) -> tuple[CurvePoint, ...]:
        return tuple(p for p in self._points if p.step <= checkpoint.step)
