"""Which cores a process may use, and how far it stands back behind others. What a system does not know is left out."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")


class Whereabouts:
    """On which cores this process runs, while that is somebody else's wish."""

    def __init__(self) -> None:
        self._own: frozenset[int] = frozenset()
        """Those it had before; empty: it was not sent anywhere."""

    def go_to(self, cores: Collection[int]) -> None:
        """Run on these cores from now on; empty: where this process would run by itself."""
        if cores:
            self._own = self._own or usable_cores()
            run_on(os.getpid(), cores)
        elif self._own:
            run_on(os.getpid(), self._own)
            self._own = frozenset()


def usable_cores() -> frozenset[int]:
    """Return the numbers of the cores that the calling thread may use; empty where nothing says so."""
    return _mask(0)


def bound_cores(pid: int, usable: frozenset[int]) -> frozenset[int]:
    """Return the cores that threads of process `pid` are bound to: those of every thread that may not use all `usable`.

    Each thread of OpenMP may have one core of its own, so that the main one alone does not tell.
    """
    masks = [_mask(thread) for thread in _threads(pid)]
    return frozenset[int]().union(*(mask for mask in masks if mask < usable))


def run_on(pid: int, cores: Collection[int]) -> None:
    """Let every thread of process `pid`, and all that they start, run on these cores only."""
    done: set[int] = set()
    while new := [thread for thread in _threads(pid) if thread not in done]:  # some may start others meanwhile
        for thread in new:
            with suppress(OSError):
                os.sched_setaffinity(thread, cores)
        done.update(new)


def niceness_of(pid: int) -> int:
    """Return how far process `pid` stands back, 0 when it has ended."""
    try:
        return os.getpriority(os.PRIO_PROCESS, pid)
    except OSError:
        return 0


def stand_back(group: int, niceness: int) -> None:
    """Make a process group nicer to others, with all that it will start. There is no way back.

    Where Linux shares the CPU out by sessions first (`autogroup`), the niceness of a process counts within its own
    session only, so the session gets it too.
    """
    if niceness <= 0:
        return
    with suppress(OSError):  # it ended, or this process is no Linux one
        niceness = max(niceness, os.getpriority(os.PRIO_PGRP, group))
        os.setpriority(os.PRIO_PGRP, group, niceness)
    with suppress(OSError):  # not every Linux has it, and not every container lets it be written
        (_PROC / str(group) / "autogroup").write_text(f"{niceness}\n")


# --- private


def _mask(thread: int) -> frozenset[int]:
    try:
        return frozenset(os.sched_getaffinity(thread)) if _PROC.is_dir() else frozenset()
    except OSError:
        return frozenset()


def _threads(pid: int) -> list[int]:
    try:
        return [int(thread.name) for thread in (_PROC / str(pid) / "task").iterdir()]
    except OSError:
        return []
