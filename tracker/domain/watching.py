"""When a checkpoint folder is acted on, decided from what was seen of it over time. Pure.

A complete folder is held at once, because rotation may delete it milliseconds later. It is published when it has
settled. What never completes, or goes before it has settled, is a gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import pairwise

from tracker.domain.discovery import Complete, NotYet, Rejected
from tracker.domain.listing import Facts, FileFact

STALLED_S = 600.0
"""After this long without any change an unfinished folder is called unfinished, even when nothing came after it."""


class Change(StrEnum):
    """What became of files that were held."""

    SAME = "same"
    SHRUNK = "shrunk"
    """Some are gone and the others are as before: the folder is being deleted."""
    CHANGED = "changed"
    """At least one was written again."""


def change_of(held: Iterable[FileFact], facts: Facts) -> Change:
    """Compare the files as they were when they were held with what is there now."""
    current = {f.name: f for f in facts.files}
    is_shrunk = False
    for before in held:
        after = current.get(before.name)
        if after is None:
            is_shrunk = True
        elif after != before:
            return Change.CHANGED
    return Change.SHRUNK if is_shrunk else Change.SAME


def time_of_ns(ns: int) -> datetime:
    """Return a file time as UTC."""
    return datetime.fromtimestamp(ns / 1e9, UTC)


def is_quiet(unchanged_since: datetime, now: datetime, quiet_s: float) -> bool:
    """Return whether nothing changed for `quiet_s`, by our own clock."""
    return now - unchanged_since >= timedelta(seconds=quiet_s)


def is_settled(complete: Complete, newest_ns: int, unchanged_since: datetime, now: datetime, settle_s: float) -> bool:
    """Return whether a complete folder has stopped changing.

    File times count only where trainer_state.json has proven the end: a file server's clock may be wrong.
    """
    if is_quiet(unchanged_since, now, settle_s):
        return True
    return complete.prompt and now - time_of_ns(newest_ns) >= timedelta(seconds=settle_s)


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


def settles_in_s(
    complete: Complete, newest_ns: int, unchanged_since: datetime, now: datetime, settle_s: float
) -> float:
    """Return in how many seconds `is_settled` becomes true if nothing changes, 0 when it is."""
    start = min(unchanged_since, time_of_ns(newest_ns)) if complete.prompt else unchanged_since
    return max(0.0, settle_s - (now - start).total_seconds())
