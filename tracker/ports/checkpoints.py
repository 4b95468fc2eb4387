"""Where checkpoints come from, their pins, and the trainer's other files."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from eval_jobs.types import Checkpoint
from tracker.domain.records.tracking import TrainerFacts
from tracker.domain.records.types import CurvePoint, Gap


class CheckpointSource(Protocol):
    """Finds and pins the checkpoints of one training output folder."""

    def ready(self, now: datetime) -> tuple[Checkpoint, ...]:
        """Return every checkpoint that is complete and pinned, lowest step first, new content only.

        One call scans the disk once. A network source polls in the background, and a call returns what it found. A
        checkpoint is returned once per process. After a restart all pinned ones are returned again, because the process
        may have died before it used them. Nothing in the trainer's folders is written, renamed or deleted.
        """

    def gaps(self) -> tuple[Gap, ...]:
        """Return every checkpoint that cannot be evaluated, found so far by this process, with the reason."""

    def is_behind(self) -> bool:
        """Return whether there may be unknown checkpoints: storage does not respond, or a download is running."""

    def give_up(self, now: datetime) -> None:
        """Turn every unfinished checkpoint into a gap: the training has ended and will not finish it.

        A checkpoint that cannot be read now does not become a gap.
        """

    def wait(self, timeout_s: float) -> None:
        """Return after `timeout_s`, or earlier when something may have changed on disk, or `wake` was called."""

    def wake(self) -> None:
        """Let the current or next `wait` return immediately. May be called from any thread."""

    def close(self) -> None:
        """Stop watching. Calling it twice is harmless."""


@dataclass(frozen=True, kw_only=True)
class HeldPin:
    """One of the tracker's pins, and the space that it takes."""

    checkpoint: Checkpoint
    own_bytes: int
    """Bytes that deleting it frees: files that the trainer still has take no additional space."""


class Pins(Protocol):
    """The tracker's published pins on checkpoints."""

    def held(self) -> tuple[HeldPin, ...]:
        """Return every pin that has weights, of every run, ordered by (run, step, digest)."""

    def given_up(self) -> frozenset[str]:
        """Return the `uri` of every checkpoint whose pinned weights were deleted."""

    def release(self, pin: HeldPin) -> bool:
        """Delete the files of a pin; return False, without a change, if it is in use or gone.

        The checkpoint is not pinned again while the trainer's folder is unchanged. The trainer's files are not touched.

        Raises:
            DiskFull, StoreError: the pin cannot be changed.
        """

    def in_use(self, checkpoint: Checkpoint) -> AbstractContextManager[None]:
        """Keep the pin of `checkpoint` from being released, by any process, while the context is open."""


class CurveReader(Protocol):
    """Reads what the trainer saved with a checkpoint: curves, parameters, its end. Logs are read by `TrainingLog`."""

    def read(self, checkpoint: Checkpoint) -> tuple[CurvePoint, ...]:
        """Return all finite points in the checkpoint, ordered by step; () when there are none.

        Curves over steps do not fit the axis of a run that counts epochs: it has none.
        """

    def facts(self, checkpoint: Checkpoint) -> TrainerFacts:
        """Return name and parameters of the training, as far as readable files state them."""

    def last_step(self, checkpoint: Checkpoint) -> int | None:
        """Return the step at which the training will end; None if the trainer did not write it to disk."""
