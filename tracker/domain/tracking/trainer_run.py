"""Whether a run in the tracking store is the trainer's own. Pure.

The trainer leaves no run id on disk, but it logs its output folder and the same losses that its state file contains.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

LOSS_KEY = "train/loss"
"""The training loss in our own curves."""

RELATIVE_TOLERANCE = 1e-6
ROUNDING = 0.005
"""The same for losses that a trainer printed for people."""


@dataclass(frozen=True, kw_only=True)
class RunCandidate:
    """A run whose parameter `output_dir` may be the watched folder."""

    output_dir: str
    """As passed to the trainer, so it may be relative to an unknown folder."""
    started_ms: int
    ended_ms: int | None
    losses: Mapping[int, Collection[float]]
    """Step -> losses logged at it; several after a resume."""


def is_trainers_run(
    candidate: RunCandidate, folders: Sequence[str], written_ms: int, losses: Mapping[int, float]
) -> bool:
    """Return whether `candidate` is the run that wrote a checkpoint at `written_ms`, in Unix time.

    Losses at common steps must be equal. If there is no common step (the store is slower than the disk, or the
    trainer keeps no log), the folder must be absolute and the checkpoint written while the run was open. This excludes
    an earlier run into the same folder.

    `folders` are absolute paths of the trainer's output folder; `losses` on disk are by step.
    """
    absolute = PurePosixPath(candidate.output_dir).is_absolute()
    if not any(_names(candidate.output_dir, folder) for folder in folders):
        return False
    common = candidate.losses.keys() & losses.keys()
    for step in common:
        logged = candidate.losses[step]
        if not any(math.isclose(losses[step], loss, rel_tol=RELATIVE_TOLERANCE) for loss in logged):
            return False
    if common:
        return True
    return absolute and _was_open(candidate, written_ms)


def may_be_trainers_run(
    candidate: RunCandidate, folders: Sequence[str], logged_ms: int, losses: Mapping[int, float]
) -> bool:
    """Return whether `candidate` may be the run whose log had `losses` at `logged_ms`: they are rounded in a log.

    If there is no common step, the folder must be absolute: another training may have logged the same relative one.
    """
    if not _was_open(candidate, logged_ms) or not any(_names(candidate.output_dir, folder) for folder in folders):
        return False
    common = candidate.losses.keys() & losses.keys()
    if not common:
        return PurePosixPath(candidate.output_dir).is_absolute()
    return all(
        any(math.isclose(losses[step], loss, rel_tol=ROUNDING) for loss in candidate.losses[step]) for step in common
    )


def _was_open(candidate: RunCandidate, at_ms: int) -> bool:
    return candidate.started_ms <= at_ms and (candidate.ended_ms is None or at_ms <= candidate.ended_ms)


def _names(output_dir: str, folder: str) -> bool:
    """Return whether `output_dir` is `folder`, or a relative path that may end there."""
    given, full = PurePosixPath(output_dir).parts, PurePosixPath(folder).parts
    return bool(given) and (given == full or (given[0] != "/" and full[-len(given) :] == given))
