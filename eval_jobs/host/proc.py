"""Processes as Linux shows them in /proc: who is who, although process ids are used again.

psutil tells the start of a process by the time of day, which moves when the clock is set: a living worker would be
taken for another process. Here it is counted from the boot.
"""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, kw_only=True)
class ProcessStat:
    """One line of /proc/PID/stat. A process id together with its start time is unique until the next boot."""

    pid: int
    state: str
    parent: int
    group: int
    start_time: int
    """Clock ticks since boot."""
    cpu_ticks: int
    """CPU time that it and its children used, those that have ended and were waited for."""

    @property
    def alive(self) -> bool:
        """False for a zombie, which holds nothing but its number."""
        return self.state not in "ZX"


def is_visible() -> bool:
    """Return whether this system shows its processes in /proc, as Linux does and others do not."""
    return (_PROC / "self" / "stat").is_file()


def stat(pid: int) -> ProcessStat | None:
    """Return what is known of process `pid`, or None when there is none."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name in parentheses may itself hold spaces and parentheses: the fields start after the last one.
    fields = text.rpartition(")")[2].split()
    cpu_ticks = sum(map(int, fields[11:15]))
    return ProcessStat(
        pid=pid,
        state=fields[0],
        parent=int(fields[1]),
        group=int(fields[2]),
        start_time=int(fields[19]),
        cpu_ticks=cpu_ticks,
    )


def every_process() -> Iterator[ProcessStat]:
    """Yield all processes that are visible, zombies included."""
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (found := stat(int(entry.name))) is not None:
            yield found


def is_running(pid: int, start_time: int) -> bool:
    """Return whether `pid` is still the process that started at `start_time`."""
    found = stat(pid)
    return found is not None and found.alive and found.start_time == start_time


def own_start_time() -> int:
    """Return when this process started; 0 on a system that does not show its processes."""
    own = stat(os.getpid())
    if own is None:
        return 0
    return own.start_time


def writes_to(pid: int, path: Path) -> bool:
    """Return whether the standard output or error of process `pid` is `path`, also when that file is deleted."""
    return any(_link(pid, number).removesuffix(" (deleted)") == str(path) for number in (1, 2))


def error_file(pid: int) -> Path | None:
    """Return the file that process `pid` writes its errors to, also when it is deleted; None when there is none."""
    target = _link(pid, 2).removesuffix(" (deleted)")
    if target.startswith("/"):
        return Path(target)
    return None


def is_resource_tracker(pid: int) -> bool:
    """Return whether `pid` is Python's own cleaner of shared memory, which ends by itself after its parents."""
    try:
        return b"multiprocessing.resource_tracker" in (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return False


def boot_id() -> str:
    """Return a name for this boot of this machine."""
    return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def this_machine() -> str:
    """Return a name for this boot of this machine and this container: process ids mean nothing elsewhere."""
    return f"{boot_id()} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115 - the link's text is no path


def machine_hash() -> str:
    """Return what processes of this boot and container have in common, short enough for the name of a file."""
    return hashlib.sha256(this_machine().encode()).hexdigest()[:16]


# --- private


def _link(pid: int, number: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/fd/{number}")  # noqa: PTH115 - the link's text may be no path
    except OSError:
        return ""
