"""When a checkpoint folder is acted on, decided from what was seen of it over time. Pure.

A complete folder is held at once, because rotation may delete it milliseconds later. It is published when it has
settled. What never completes, or goes before it has settled, is a gap.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import Annotated

from pydantic import Field

from tracker.domain.checkpoints.completeness import Complete, NotYet, Rejected
from tracker.domain.checkpoints.listing import Facts, FileFact

PROMPT_S = 0.1
"""Instead of `settle_s` where the trainer's last file proves the end and the writing was heard of as it happened."""

HEARD_BEFORE = timedelta(seconds=1)
"""An event of the writing may come so much before the look that first sees what was written."""

NS_PER_S = 1_000_000_000

STALLED_S = 600.0
"""After this long without any change an unfinished folder is called unfinished, even when nothing came after it."""


@dataclass(frozen=True, kw_only=True)
class WatchSettings:
    """What a person may set of how checkpoints are looked for."""

    pattern: str = "checkpoint-*"
    """Glob pattern of checkpoint folders. The number at the end of the name is the step."""
    settle_s: Annotated[float, Field(gt=0)] = 3.0
    """Seconds without a change before a checkpoint counts as complete. Shortened to 0.1 s when
    trainer_state.json proves that the save has finished."""
    rescan_s: Annotated[float, Field(gt=0)] = 10.0
    """Seconds between two scans when no file event arrives."""
    polling: bool = False
    """Scan the disk instead of using file events. Required on network file systems."""
    allow_pickle: bool = False
    """Allow pickled weights (`.bin` files, DeepSpeed states with custom classes). Unpickling can execute code."""
    python: str = ""
    """Python interpreter with torch (and DeepSpeed) that consolidates sharded checkpoints. Default: the
    tracker's own."""


@dataclass(frozen=True, kw_only=True)
class WatchOptions(WatchSettings):
    """How checkpoints are looked for."""

    config_from: str = ""
    """Folder with the config.json and tokenizer of checkpoints that hold none; empty: not known."""


class FileChange(StrEnum):
    """What became of files that were held."""

    SAME = "same"
    SHRUNK = "shrunk"
    """Some are gone and the others are as before: the folder is being deleted."""
    CHANGED = "changed"
    """At least one was written again."""


def change_of(held: Iterable[FileFact], facts: Facts) -> FileChange:
    """Compare the files as they were when they were held with what is there now."""
    current = {f.name: f for f in facts.files}
    is_shrunk = False
    for before in held:
        after = current.get(before.name)
        if after is None:
            is_shrunk = True
        elif after != before:
            return FileChange.CHANGED
    if is_shrunk:
        return FileChange.SHRUNK
    return FileChange.SAME


def time_of_ns(ns: int) -> datetime:
    """Return a file time as UTC."""
    return datetime.fromtimestamp(ns / 1e9, UTC)


def is_quiet(unchanged_since: datetime, now: datetime, quiet_s: float) -> bool:
    """Return whether nothing changed for `quiet_s`, by our own clock."""
    return now - unchanged_since >= timedelta(seconds=quiet_s)


@dataclass(frozen=True, kw_only=True)
class Observation:
    """When somebody looks at what is held, and how well he hears of changes."""

    now: datetime
    settle_s: float
    heard_at: datetime | None = None
    """When the last file event came; None: none ever did, as on a file server that others write to."""


def gap_is_due(
    readiness: NotYet | Rejected, unchanged_since: datetime, now: datetime, settle_s: float, *, is_passed: bool
) -> bool:
    """Return whether an unusable folder should be reported.

    Args:
        readiness: why it is unusable.
        unchanged_since: when its last change was seen.
        now: the current time.
        settle_s: how long nothing may have changed.
        is_passed: a later checkpoint of the run is complete.
    """
    if isinstance(readiness, Rejected) or is_passed:
        return is_quiet(unchanged_since, now, settle_s)
    return is_quiet(unchanged_since, now, max(settle_s, STALLED_S))


def missed_steps(known: Mapping[int, int | None]) -> tuple[int, ...]:
    """Return the steps that the trainer must have saved between two known ones and that were never seen.

    Inferred only where the rhythm has been shown: two neighbours lie just one save apart. A run joined late has
    no hole before its first known step.

    Args:
        known: steps of one run that were seen in any state, each with the steps between two saves that its
            trainer_state.json says, or None.
    """
    pairs = list(pairwise(sorted(known)))
    rhythms = {after - before for before, after in pairs if known[after] == after - before}
    missed: list[int] = []
    for before, after in pairs:
        every = known[after]
        if every in rhythms and before % every == 0:
            missed += range(before + every, after, every)
    return tuple(missed)


def settles_in_s(complete: Complete, newest_ns: int, unchanged_since: datetime, look: Observation) -> float:
    """Return in how many seconds a complete folder will have stopped changing, 0 when it has.

    File times count only where trainer_state.json has proven the end: a file server's clock may be wrong. Then a short
    wait is enough where its writing was heard of: whatever came after it would be heard of too. File times in whole
    seconds could not show a second writing, so they ask for the long one.
    """
    if not complete.is_end_proven:
        return _left_s(unchanged_since, look, look.settle_s)
    start = min(unchanged_since, time_of_ns(newest_ns))
    is_heard = look.heard_at is not None and look.heard_at >= unchanged_since - HEARD_BEFORE
    is_brisk = is_heard and newest_ns % NS_PER_S != 0
    return _left_s(start, look, min(PROMPT_S, look.settle_s) if is_brisk else look.settle_s)


# --- private


def _left_s(start: datetime, look: Observation, settle_s: float) -> float:
    return max(0.0, settle_s - (look.now - start).total_seconds())
