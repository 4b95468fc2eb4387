"""Whether a run in the tracking store is the trainer's own. Pure.

The trainer leaves no run id on disk, but it logs its output folder and the same losses that its state file contains.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from eval_jobs.types import Checkpoint
from tracker.domain.tracking.batch import timestamp_ms

LOSS_KEY = "train/loss"
"""The training loss in our own curves."""

RELATIVE_TOLERANCE = 1e-6


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
    candidate: RunCandidate, folders: Sequence[str], checkpoint: Checkpoint, losses: Mapping[int, float]
) -> bool:
    """Return whether `candidate` is the run that wrote `checkpoint`.

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
    ready_ms = timestamp_ms(checkpoint)
    return (
        absolute and candidate.started_ms <= ready_ms and (candidate.ended_ms is None or ready_ms <= candidate.ended_ms)
    )


def _names(output_dir: str, folder: str) -> bool:
    """Return whether `output_dir` is `folder`, or a relative path that may end there."""
    given, full = PurePosixPath(output_dir).parts, PurePosixPath(folder).parts
    return bool(given) and (given == full or (given[0] != "/" and full[-len(given) :] == given))
