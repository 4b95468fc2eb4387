"""The logs of a run that are followed, and which of them are read side by side."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from tracker.adapters.trainer_files.event_files import FollowedEvents
from tracker.adapters.trainer_files.followed_file import FollowedFile
from tracker.domain.health.logs.cursor import Cursor
from tracker.domain.health.logs.streams import job_numbers


@dataclass(kw_only=True)
class FollowedLog:
    """A log that is followed."""

    file: FollowedFile | FollowedEvents
    run_id: str
    rank: int | None
    is_exact: bool
    known: Cursor | None = None
    """How far it was read by another name, to be stored by this one."""
    rest: str = ""
    rest_since_s: float = 0.0
    is_output: bool = False
    """Whether only a process that prints to it names it."""
    is_silenced: bool = False
    """Whether its error was reported."""


def beginning_after(followed: Mapping[str, FollowedLog], path: str) -> dict[str, FollowedLog]:
    """Return the logs with those behind `path` first: the next reading begins with them."""
    paths = list(followed)
    at = paths.index(path) + 1
    return {one: followed[one] for one in (*paths[at:], *paths[:at])}


def queues_of(followed: Mapping[str, FollowedLog]) -> list[deque[FollowedLog]]:
    """Return the logs that are read side by side, by path; those of several jobs are read one after the other.

    Logs with exact numbers come first: of a step in two logs, the first one counts.
    """
    found: dict[str, list[tuple[tuple[int, ...], FollowedLog]]] = {}
    for path, one in followed.items():
        kind, numbers = job_numbers(path, one.rank) or (path, ())
        found.setdefault(f"{one.run_id} {kind}", []).append((numbers, one))
    queues = []
    for logs in found.values():
        logs.sort(key=lambda log: log[0])
        queues.append(deque(one for _, one in logs))
    return sorted(queues, key=lambda queue: not queue[0].is_exact)
