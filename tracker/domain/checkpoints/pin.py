"""A pin: the tracker's own copy or hard links of a checkpoint. A pure record."""

from dataclasses import dataclass

from eval_jobs.types import Checkpoint
from tracker.domain.checkpoints.completeness import Complete
from tracker.domain.checkpoints.listing import FileFact


@dataclass(frozen=True, kw_only=True)
class Pin:
    """Everything that serving a checkpoint needs, copied or hard-linked into the tracker's own folder."""

    folder: str
    run_id: str
    step: int
    source: str
    """Absolute path of the trainer's folder, or s3://bucket/prefix."""
    complete: Complete
    source_files: tuple[FileFact, ...]
    """The pinned files as they were in the trainer's folder; in a bucket the ETag takes the place of the inode."""
    own_files: tuple[FileFact, ...]
    """The same files in the pin's folder: a change means that a process wrote through a hard link."""
    ready_ns: int
    """Newest modification time of the trainer's files."""
    checkpoint: Checkpoint | None = None
    """None: not published yet."""
    released: bool = False
    """Its files were deleted to save space; the remaining record shows that it was evaluated."""
    zeros: tuple[str, ...] = ()
    """Tensors that contain only zeros; set when the pin is published."""
    notes: tuple[str, ...] = ()
    """What is unusual about its weights without being a fault."""
    raw_weights: tuple[str, ...] = ()
    """Names of the trainer's files that the weights were converted from; empty: they were not converted."""
    unpickled: bool = False
    """Whether those were pickles, which only `watch.allow_pickle` permits."""
    by_hand: bool = False
    """Pinned on demand by a user: it is no evidence that the run was watched when it was written."""

    @property
    def uri(self) -> str:
        """Location of the source; with run and step this makes the pin a `listing.Site`."""
        return self.source

    @property
    def needs_conversion(self) -> bool:
        """Whether something is to be written into the hold, or removed from it, before it is published."""
        return self.complete.raw is not None or bool(self.raw_weights or self.complete.config_from)

    def weights(self) -> tuple[FileFact, ...]:
        """Return the metadata of the trainer's weight files, which identify the checkpoint."""
        names = self.raw_weights or self.complete.weights
        return tuple(f for f in self.source_files if f.name in names)

    def is_linked(self) -> bool:
        """Return whether the weights are hard links and take no additional space."""
        own = {f.name: f.inode for f in self.own_files}
        return all(own.get(f.name) == f.inode for f in self.weights())
