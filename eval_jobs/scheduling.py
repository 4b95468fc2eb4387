"""Which cores a process may use, and how far it stands back behind others. What a system does not know is left out."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")


def usable_cores(pid: int) -> frozenset[int]:
    """Return the numbers of the cores that process `pid` may use; empty when it has ended, or nothing says so."""
    try:
        return frozenset(os.sched_getaffinity(pid)) if _PROC.is_dir() else frozenset()
    except OSError:
        return frozenset()


def run_on(pid: int, numbers: Collection[int]) -> None:
    """Let every thread of process `pid`, and all that they start, run on these cores only."""
    with suppress(OSError):  # it has ended, or this process is no Linux one
        for thread in (_PROC / str(pid) / "task").iterdir():
            with suppress(OSError):
                os.sched_setaffinity(int(thread.name), numbers)


def stand_back(group: int, niceness: int) -> None:
    """Make a process group that has just been started nicer to others, with all that it will start; never less nice.

    Where Linux shares the CPU out by sessions first (`autogroup`), the niceness of a process counts within its own
    session only, so the session gets it too.
    """
    if niceness <= 0:
        return
    with suppress(OSError):  # it ended, or this process is no Linux one
        os.setpriority(os.PRIO_PGRP, group, max(niceness, os.getpriority(os.PRIO_PGRP, group)))
    with suppress(OSError):  # not every Linux has it, and not every container lets it be written
        (_PROC / str(group) / "autogroup").write_text(f"{niceness}\n")
