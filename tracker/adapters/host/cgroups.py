"""The cgroups of a process, version 1 or 2: the lowest limit among its own and those above it.

    memory_limits(root)     # (MemoryLimit(folder=..., limit=..., used=...), ...), own cgroup first

In a container, the path in /proc/self/cgroup may be that of the host, which is not mounted: the root is then its own,
and what is missing below it is skipped.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tracker.adapters.host.kernel_files import fields_of, number_of_file, text_in

CGROUPS = "sys/fs/cgroup"
_KILLS = ("memory.events", "memory.oom_control")
"""Files of version 2 and of version 1."""


@dataclass(frozen=True, kw_only=True)
class MemoryLimit:
    """One cgroup with a limit."""

    folder: str
    limit: int
    used: int


def memory_limits(root: Path, pid: int | None = None) -> tuple[MemoryLimit, ...]:
    """Return the cgroups with a memory limit; a limit of version 1 above 2**62 is none. `pid`: None: this process."""
    found = []
    for folder in _folders(root, "memory", pid):
        limit = _first(folder, "memory.max", "memory.limit_in_bytes")
        if limit is not None and limit < 1 << 62:
            used = _first(folder, "memory.current", "memory.usage_in_bytes") or 0
            cached = fields_of(folder / "memory.stat")
            droppable = cached.get("total_inactive_file", cached.get("inactive_file", 0))
            found.append(MemoryLimit(folder=str(folder), limit=limit, used=max(0, used - droppable)))
    return tuple(found)


def memory_folder(root: Path, pid: int) -> Path | None:
    """Return the folder that counts what the kernel kills for memory of a process; None: none can be read."""
    for folder in _folders(root, "memory", pid):
        if any((folder / name).is_file() for name in _KILLS):
            return folder
    return None


def memory_kills(folder: Path) -> int:
    """Return how many processes of a cgroup were killed for memory since it exists; 0 if it does not say."""
    return max(fields_of(folder / name).get("oom_kill", 0) for name in _KILLS)


def process_room(root: Path) -> int | None:
    """Return how many processes and threads the cgroups still permit; None: no limit."""
    rooms = []
    for folder in _folders(root, "pids"):
        limit = number_of_file(folder / "pids.max")
        if limit is not None:
            rooms.append(limit - (number_of_file(folder / "pids.current") or 0))
    return min(rooms, default=None)


def cores(root: Path) -> float:
    """Return how many cores this process and the cgroups up the tree may use."""
    found = [float(len(os.sched_getaffinity(0)))]
    for folder in _folders(root, "cpu"):
        words = text_in(folder / "cpu.max").split()
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        quota, period, *_ = words if len(words) == 2 else [text_in(folder / name).strip() for name in names]
        if quota.isdecimal() and period.isdecimal():  # else `max`, -1 or no such file
            found.append(int(quota) / max(1, int(period)))
    return min(found)


def paths(root: Path, pid: int | None = None) -> dict[str, str]:
    """Return the path of a process by controller; "" is version 2."""
    place = root / "proc" / ("self" if pid is None else str(pid)) / "cgroup"
    lines = (line.split(":", 2) for line in text_in(place).splitlines())
    return {name: parts[2] for parts in lines if len(parts) == 3 for name in parts[1].split(",")}


def _folders(root: Path, controller: str, pid: int | None = None) -> Iterator[Path]:
    """Yield the cgroup of a process and those above it, of the version that has this controller."""
    known = paths(root, pid)
    top = root / CGROUPS
    if controller in known:
        top, own = top / controller, known[controller]
    else:
        own = known.get("", "/")
    folder = top / own.strip("/")
    yield folder
    while folder != top:
        folder = folder.parent
        yield folder


def _first(folder: Path, *names: str) -> int | None:
    return next((number for name in names if (number := number_of_file(folder / name)) is not None), None)
