"""An engine that serves nothing itself: it hands out an endpoint that it was given."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from eval_jobs.errors import TrackerError
from eval_jobs.ports import Note
from eval_jobs.types import Checkpoint, Endpoint, ServeSpec


class FakeEngine:
    """`eval_jobs.ports.Engine` in memory.

    Args:
        endpoint: what every checkpoint is "served" at.
        faults: errors to raise instead, by step.
    """

    def __init__(self, endpoint: Endpoint, *, faults: Mapping[int, TrackerError] | None = None) -> None:
        self.endpoint = endpoint
        self.faults = dict(faults or {})
        self.served_steps: list[int] = []
        self.serving_step: int | None = None
        self.cpu_s: float | None = None
        self.died: TrackerError | None = None
        """What is raised at the end of a service."""
        self.rested = 0
        self.closed = False

    @contextmanager
    def serving(self, checkpoint: Checkpoint, spec: ServeSpec, *, progress: Note) -> Iterator[Endpoint]:  # noqa: ARG002
        """Hand out the endpoint, or raise the fault of this step."""
        progress("starting the engine")
        if checkpoint.step in self.faults:
            raise self.faults[checkpoint.step]
        self.served_steps.append(checkpoint.step)
        self.serving_step = checkpoint.step
        try:
            yield self.endpoint
        finally:
            self.serving_step = None
        if self.died is not None:
            raise self.died

    def rest(self) -> None:
        """Note it."""
        self.rested += 1

    def used_cpu_s(self) -> float | None:
        """Return what a test has set."""
        return self.cpu_s

    def close(self) -> None:
        """Note it."""
        self.closed = True
