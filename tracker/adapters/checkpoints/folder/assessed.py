"""Whether a checkpoint folder is complete at this moment, for commands that do not wait for it. Only reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tracker.adapters.checkpoints.files.listing import CheckpointLocation, facts_of_folder, read_listing
from tracker.domain.checkpoints.completeness import Complete, assess
from tracker.domain.checkpoints.names import step_of
from tracker.domain.checkpoints.unusable import NotYet, Rejected
from tracker.domain.checkpoints.watching import WatchOptions

NEWEST = 3
"""Folders that are read: the newest is often still being written."""


@dataclass(frozen=True, kw_only=True)
class Assessed:
    """A folder and its state."""

    path: Path
    complete: Complete | None = None
    problem: NotYet | Rejected | None = None
    """Why it is not complete."""
    weights_bytes: int = 0
    """Size of the weight files of a complete checkpoint."""


def assessed(path: Path, options: WatchOptions | None = None) -> Assessed:
    """Return the state of a checkpoint folder; an unreadable one is not complete."""
    options = options or WatchOptions()
    try:
        facts = facts_of_folder(path)
        if facts is None:
            return Assessed(path=path, problem=NotYet(code="", reason="no such folder", hint="check the path"))
        listing = read_listing(facts, step_of(path.name), config_from=options.config_from)
    except OSError as error:
        reason = f"cannot read its files: {error.strerror}"
        return Assessed(path=path, problem=NotYet(code="", reason=reason, hint="check its permissions"))
    readiness = assess(listing, allow_pickle=options.allow_pickle, converts=bool(options.convert))
    if not isinstance(readiness, Complete):
        return Assessed(path=path, problem=readiness)
    weights_bytes = sum(file.size for file in facts.files if file.name in readiness.weights)
    return Assessed(path=path, complete=readiness, weights_bytes=weights_bytes)


def newest_assessed(
    places: Sequence[CheckpointLocation], options: WatchOptions | None = None
) -> tuple[Assessed, Assessed | None]:
    """Return the newest of `places`, ordered by step, and the newest complete one of the last few; None: none is."""
    newest = [assessed(place.path, options) for place in reversed(places[-NEWEST:])]
    return newest[0], next((one for one in newest if one.complete is not None), None)
