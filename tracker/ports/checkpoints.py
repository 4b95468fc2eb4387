"""Where checkpoints come from, what holds them, and what lies beside them."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from eval_jobs.types import Checkpoint
from tracker.domain.records.types import CurvePoint, Gap


class CheckpointSource(Protocol):
    """Finds and pins the checkpoints of one training output folder."""

    def ready(self, now: datetime) -> tuple[Checkpoint, ...]:
        """Return every checkpoint that is complete and pinned, lowest step first, new content only.

        One call looks at the disk once; a source over a network looks by itself, and a call tells what it found. A
        checkpoint is returned once per process; after a restart all pinned ones are returned again, because the process
        may have died before it used them. Nothing where the trainer writes is written, renamed or deleted.
        """

    def gaps(self) -> tuple[Gap, ...]:
        """Return every checkpoint that cannot be evaluated, found so far by this process, with the reason."""

    def is_behind(self) -> bool:
        """Return whether more may be there than is known: storage does not answer, or a download is under way."""

    def give_up(self, now: datetime) -> None:
        """Make a gap of every checkpoint that is not finished: the training has ended, and nobody will finish it.

        What cannot be looked at now is no gap.
        """

    def wait(self, timeout_s: float) -> None:
        """Return after `timeout_s`, or earlier when something may have changed on disk, or `wake` was called."""

    def wake(self) -> None:
        """Let a `wait` that goes on, or else the next one, return at once. May be called from any thread."""

    def close(self) -> None:
        """Stop watching. Calling it twice is harmless."""


@dataclass(frozen=True, kw_only=True)
class HeldPin:
    """One of our pins, and what it costs."""

    checkpoint: Checkpoint
    own_bytes: int
    """What deleting it frees: files that the trainer still has take no further space."""


class Pins(Protocol):
    """Our own holds on checkpoints, once they are published."""

    def held(self) -> tuple[HeldPin, ...]:
        """Return every pin that holds weights, of every run, ordered by (run, step, digest)."""

    def given_up(self) -> frozenset[str]:
        """Return the `uri` of every checkpoint whose weights were given up."""

    def release(self, pin: HeldPin) -> bool:
        """Give up the files of a pin; False and nothing is done when somebody uses it or it is gone.

        The checkpoint is not pinned anew while the trainer's folder is unchanged. Nothing of the trainer is touched.

        Raises:
            DiskFull, StoreError: the pin cannot be changed.
        """

    def in_use(self, checkpoint: Checkpoint) -> AbstractContextManager[None]:
        """Keep the pin of `checkpoint` from being released, by any process, while the context is open."""


class CurveReader(Protocol):
    """Reads training curves that the trainer left on disk."""

    def read(self, checkpoint: Checkpoint) -> tuple[CurvePoint, ...]:
        """Return all finite points known at this checkpoint, ordered by step; () when there are none."""

    def last_step(self, checkpoint: Checkpoint) -> int | None:
        """Return the step at which the training will end, None where the trainer did not leave it on disk."""

    def logged_at(self, checkpoint: Checkpoint) -> datetime | None:
        """Return when the trainer last wrote a log beside this checkpoint, by the file server's clock; None: never."""
