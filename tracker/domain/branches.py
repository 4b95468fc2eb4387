"""What a run left behind when its training went back: checkpoints that are no longer on the way to the newest. Pure.

    branches = branches_of(checkpoints)
    branches.left_by(checkpoint)        # the checkpoint that took its place, or None
    branches.sees(candidate, other)     # whether `other` lies on the way that `candidate` is on

Training went back where a trainer's folder was written again with other weights: checkpoint-300 of Monday and
checkpoint-300 of Tuesday. Everything from that step on that is older than the rewritten folder was left behind. File
times alone show no such thing: copied folders have them in any order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from eval_jobs.types import Checkpoint


@dataclass(frozen=True, kw_only=True)
class Branches:
    """The branches of one run."""

    rewrites: tuple[Checkpoint, ...] = ()
    """Checkpoints whose folder held other weights before, in the order in which they were written."""

    def left_by(self, checkpoint: Checkpoint) -> Checkpoint | None:
        """Return the first rewritten checkpoint that left this one behind; None: it is on the newest branch."""
        return next((again for again in self.rewrites if _leaves(again, checkpoint)), None)

    def sees(self, candidate: Checkpoint, other: Checkpoint) -> bool:
        """Return whether `other` is on the branch of `candidate`, before it or after it."""
        if any(again.ready_at <= candidate.ready_at and _leaves(again, other) for again in self.rewrites):
            return False  # left behind before the candidate was written
        end = self.left_by(candidate)
        return end is None or other.ready_at < end.ready_at


def branches_of(checkpoints: Iterable[Checkpoint]) -> Branches:
    """Return the branches of a run from all its checkpoints, in any order, each as often as it likes."""
    first: dict[str, Checkpoint] = {}
    several: dict[str, dict[str, Checkpoint]] = {}
    for checkpoint in checkpoints:
        known = first.setdefault(checkpoint.source_uri, checkpoint)
        if known.digest != checkpoint.digest and _is_trainers(checkpoint):
            contents = several.setdefault(checkpoint.source_uri, {known.digest: known})
            earlier = contents.setdefault(checkpoint.digest, checkpoint)
            contents[checkpoint.digest] = min(earlier, checkpoint, key=lambda c: c.ready_at)
    rewrites = (
        c
        for contents in several.values()
        for c in contents.values()
        if c.ready_at > _oldest(contents.values()).ready_at
    )
    return Branches(rewrites=tuple(sorted(rewrites, key=lambda c: (c.ready_at, c.step))))


# --- private


def _leaves(again: Checkpoint, other: Checkpoint) -> bool:
    """Return whether training went back to before `other` when it wrote `again`."""
    if other.step < again.step or other.ready_at >= again.ready_at or other.digest == again.digest:
        return False
    if other.step == again.step:
        return other.source_uri == again.source_uri
    return PurePosixPath(other.source_uri).parent == PurePosixPath(again.source_uri).parent


def _is_trainers(checkpoint: Checkpoint) -> bool:
    """Return whether the folder is named by its step: others are overwritten for any reason."""
    name = PurePosixPath(checkpoint.source_uri).name
    digits = name[len(name.rstrip("0123456789")) :]
    return digits != "" and int(digits) == checkpoint.step


def _oldest(checkpoints: Iterable[Checkpoint]) -> Checkpoint:
    return min(checkpoints, key=lambda c: c.ready_at)
