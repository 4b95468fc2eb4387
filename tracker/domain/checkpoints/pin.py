"""What a pin is: our own hold on a checkpoint. A pure record."""

from dataclasses import dataclass

from eval_jobs.types import Checkpoint
from tracker.domain.checkpoints.completeness import Complete
from tracker.domain.checkpoints.listing import FileFact


@dataclass(frozen=True, kw_only=True)
class Pin:
    """A complete copy of what serving needs, in our own folder."""

    folder: str
    run_id: str
    step: int
    source: str
    """Absolute path of the trainer's folder, or s3://bucket/prefix."""
    complete: Complete
    source_files: tuple[FileFact, ...]
    """The held files as they were in the trainer's folder; in a bucket the ETag stands in the inode's place."""
    own_files: tuple[FileFact, ...]
    """The same in our folder: a change means that somebody wrote through a hard link."""
    ready_ns: int
    """Newest modification time of the trainer's files."""
    checkpoint: Checkpoint | None = None
    """None: held, not yet published."""
    released: bool = False
    """Its files were given up to save space; what is left says that it was evaluated."""
    zeros: tuple[str, ...] = ()
    """Tensors that hold nothing but zeros; known of what is published."""
    notes: tuple[str, ...] = ()
    """What is unusual about its weights and no fault."""
    raw_weights: tuple[str, ...] = ()
    """Names of the trainer's files that the weights were made from; empty: they are the trainer's own files."""
    unpickled: bool = False
    """Whether those were pickles that only `watch.allow_pickle` lets in."""
    by_hand: bool = False
    """A person named it: it does not say that the run was watched when it was written."""

    @property
    def uri(self) -> str:
        """Where the checkpoint lies that it holds; with run and step this makes it a `listing.Site`."""
        return self.source

    def weights(self) -> tuple[FileFact, ...]:
        """Return the facts of the trainer's weights: what a checkpoint's identity rests on."""
        names = self.raw_weights or self.complete.weights
        return tuple(f for f in self.source_files if f.name in names)

    def is_linked(self) -> bool:
        """Return whether the weights take no space of their own."""
        own = {f.name: f.inode for f in self.own_files}
        return all(own.get(f.name) == f.inode for f in self.weights())
