"""When to act on a checkpoint folder, decided from its observed changes over time. Pure.

A complete folder is pinned immediately, because rotation may delete it milliseconds later. It is published when it has
settled. A folder that never completes, or is deleted before it has settled, is a gap.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import Annotated

from pydantic import Field

from tracker.domain.checkpoints.completeness import Complete
from tracker.domain.checkpoints.listing import Facts, FileFact
from tracker.domain.checkpoints.unusable import NotYet, Rejected

PROMPT_S = 0.1
"""Replaces `settle_s` if the trainer's last file proves the end and file events arrived during the save."""

HEARD_BEFORE = timedelta(seconds=1)
"""A file event may precede the scan that first sees its change by this much."""

NS_PER_S = 1_000_000_000

_FIRST_S = datetime(1980, 1, 1, tzinfo=UTC).timestamp()
_DAY_S = 86_400

STALLED_S = 600.0
"""After this time without changes an unfinished folder becomes a gap, even without a later checkpoint."""


@dataclass(frozen=True, kw_only=True)
class WatchSettings:
    """User settings for finding checkpoints."""

    pattern: str = ""
    """Glob pattern of checkpoint folders; the number at the end is the step. Empty: names that trainers use, else a
    numbered series of models."""
    settle_s: Annotated[float, Field(gt=0)] = 3.0
    """Seconds without a change before a checkpoint counts as complete. Shortened to 0.1 s when
    trainer_state.json proves that the save has finished."""
    rescan_s: Annotated[float, Field(gt=0)] = 10.0
    """Seconds between two scans when no file event arrives."""
    polling: bool = False
    """Scan the disk instead of using file events. Required on network file systems."""
    allow_pickle: bool = False
    """Allow pickled weights (`.bin` files, DeepSpeed states with custom classes). Unpickling can execute code."""
    convert: tuple[str, ...] = ()
    """Command that converts other formats to a Hugging Face folder, with `{source}` and `{target}`."""
    python: str = ""
    """Python interpreter with torch (and DeepSpeed) that converts checkpoints to safetensors. Default: the
    tracker's own."""


@dataclass(frozen=True, kw_only=True)
class WatchOptions(WatchSettings):
    """All options for finding checkpoints."""

    config_from: str = ""
    """Folder with the config.json and tokenizer of checkpoints without them; empty: unknown."""


class FileChange(StrEnum):
    """How files changed since they were pinned."""

    SAME = "same"
    SHRUNK = "shrunk"
    """Some were deleted and the others are unchanged: the folder is being deleted."""
    CHANGED = "changed"
    """At least one was rewritten."""


def change_of(held: Iterable[FileFact], facts: Facts) -> FileChange:
    """Compare files as they were when pinned with the current ones."""
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


def known_time(ns: int, now: datetime) -> datetime | None:
    """Return a file time as UTC; None: it is not between 1980 and tomorrow, so it says nothing about the file."""
    if _FIRST_S * NS_PER_S <= ns <= (now.timestamp() + _DAY_S) * NS_PER_S:
        return time_of_ns(ns)
    return None


def is_quiet(unchanged_since: datetime, now: datetime, quiet_s: float) -> bool:
    """Return whether nothing changed for `quiet_s`, by the clock of this machine."""
    return now - unchanged_since >= timedelta(seconds=quiet_s)


@dataclass(frozen=True, kw_only=True)
class Observation:
    """Time and settings of a check whether a pin has settled, and the last file event."""

    now: datetime
    settle_s: float
    heard_at: datetime | None = None
    """Time of the last file event; None: none yet, as on a file server that other machines write to."""


def gap_is_due(
    readiness: NotYet | Rejected, unchanged_since: datetime, now: datetime, settle_s: float, *, is_passed: bool
) -> bool:
    """Return whether an unusable folder should be reported.

    `unchanged_since` is when its last change was seen; `is_passed`: a later checkpoint of the run is complete.
    """
    if isinstance(readiness, Rejected) or is_passed:
        return is_quiet(unchanged_since, now, settle_s)
    return is_quiet(unchanged_since, now, max(settle_s, STALLED_S))


def missed_steps(known: Mapping[int, int | None]) -> tuple[range, ...]:
    """Return the steps that the trainer must have saved between two known ones and that were never seen: never empty.

    Inferred only if the save interval is confirmed: two consecutive steps are exactly one interval apart. No step
    is inferred before the first known one, so a run can be joined late. `known` maps the steps of one run, seen in any
    state, to the steps between two saves according to its trainer_state.json, or None.
    """
    pairs = list(pairwise(sorted(known)))
    rhythms = {after - before for before, after in pairs if known[after] == after - before}
    missed: list[range] = []
    for before, after in pairs:
        every = known[after]
        if every in rhythms and before % every == 0 and before + every < after:
            missed.append(range(before + every, after, every))
    return tuple(missed)


def settles_in_s(complete: Complete, newest_ns: int, unchanged_since: datetime, look: Observation) -> float:
    """Return the seconds until a complete folder counts as settled, 0 if it already does.

    File times are used only if trainer_state.json proves the end: a file server's clock may be wrong. Then a short wait
    is enough if the save triggered file events: later changes would trigger events too. File times in whole seconds
    cannot show a second write, so they require the long wait.
    """
    saved_at = known_time(newest_ns, look.now)
    if not complete.is_end_proven or saved_at is None:
        return _left_s(unchanged_since, look, look.settle_s)
    start = min(unchanged_since, saved_at)
    is_heard = look.heard_at is not None and look.heard_at >= unchanged_since - HEARD_BEFORE
    is_brisk = is_heard and newest_ns % NS_PER_S != 0
    return _left_s(start, look, min(PROMPT_S, look.settle_s) if is_brisk else look.settle_s)


@dataclass(frozen=True, kw_only=True)
class Leader:
    """The process that watches a run, among several that could."""

    host: str
    pid: int
    since: datetime
    output_dir: str
    """Output folder that the process watches."""

    def sentence(self, run: str) -> str:
        """Return who watches `run`, where and since when."""
        return (
            f"run {run} ({self.output_dir}) is already being watched: process {self.pid} on {self.host}, "
            f"since {self.since.astimezone():%Y-%m-%d %H:%M:%S}"
        )


def _left_s(start: datetime, look: Observation, settle_s: float) -> float:
    return max(0.0, settle_s - (look.now - start).total_seconds())
