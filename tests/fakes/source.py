"""A checkpoint source in memory: the test says what the trainer did."""

from datetime import datetime

from eval_jobs.types import Checkpoint
from tracker.domain.records.types import Gap


class FakeSource:
    """`tracker.ports.CheckpointSource` fed by `put` and `put_gap`. `waited` holds every wait that was asked for."""

    def __init__(self, *checkpoints: Checkpoint) -> None:
        self._new = list(checkpoints)
        self._all = list(checkpoints)
        self._known = {_identity(c) for c in checkpoints}
        self._gaps: list[Gap] = []
        self.unfinished: list[Gap] = []
        """What becomes a gap when the training has ended."""
        self.waited: list[float] = []
        self.wakes = 0
        self.is_closed = False
        self.behind = False
        """Storage does not answer."""

    def put(self, checkpoint: Checkpoint) -> None:
        """The trainer finished a checkpoint; content that is known already changes nothing."""
        if _identity(checkpoint) not in self._known:
            self._known.add(_identity(checkpoint))
            self._new.append(checkpoint)
            self._all.append(checkpoint)

    def start_again(self) -> None:
        """The process died: what was pinned is returned once more."""
        self._new = list(self._all)

    def put_gap(self, gap: Gap) -> None:
        """A checkpoint was lost."""
        self._gaps.append(gap)

    def ready(self, now: datetime) -> tuple[Checkpoint, ...]:  # noqa: ARG002 - part of the port
        new, self._new = self._new, []
        return tuple(sorted(new, key=lambda c: (c.step, c.run_id)))

    def gaps(self) -> tuple[Gap, ...]:
        return tuple(self._gaps)

    def is_behind(self) -> bool:
        return self.behind

    def give_up(self, now: datetime) -> None:  # noqa: ARG002 - part of the port
        self._gaps += self.unfinished
        self.unfinished = []

    def wait(self, timeout_s: float) -> None:
        self.waited.append(timeout_s)

    def wake(self) -> None:
        self.wakes += 1

    def close(self) -> None:
        self.is_closed = True


def _identity(checkpoint: Checkpoint) -> tuple[str, int, str]:
    return (checkpoint.run_id, checkpoint.step, checkpoint.digest)
