"""Processes in Linux's /proc, identified by their start time, because process IDs are reused.

psutil reports the start of a process as time of day, which changes when the clock is set: a running worker would be
mistaken for another process. Here it is counted from boot.
"""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_FIRST_NAMESPACE = "pid:[4026531836]"
"""Of the machine itself: PROC_PID_INIT_INO in include/linux/proc_ns.h."""


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
    """CPU time of the process and of its children that have ended and were waited for."""

    @property
    def alive(self) -> bool:
        """False for a zombie, which keeps only its process ID."""
        return self.state not in "ZX"


def is_visible() -> bool:
    """Return whether this system shows its processes in /proc, as only Linux does."""
    return (_PROC / "self" / "stat").is_file()


def stat(pid: int) -> ProcessStat | None:
    """Return the state of process `pid`; None if there is no such process."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name in parentheses may itself contain spaces and parentheses: the fields start after the last one.
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
    """Return when this process started, in clock ticks since boot; 0 if the system has no /proc."""
    own = stat(os.getpid())
    if own is None:
        return 0
    return own.start_time


def writes_to(pid: int, path: Path) -> bool:
    """Return whether the standard output or error of process `pid` is `path`, even if that file is deleted."""
    return any(_link(pid, number).removesuffix(" (deleted)") == str(path) for number in (1, 2))


def error_file(pid: int) -> Path | None:
    """Return the file of the standard error of process `pid`, even if it is deleted; None if there is none."""
    target = _link(pid, 2).removesuffix(" (deleted)")
    if target.startswith("/"):
        return Path(target)
    return None


def is_resource_tracker(pid: int) -> bool:
    """Return whether `pid` is Python's resource tracker for shared memory, which ends by itself after its parents."""
    try:
        return b"multiprocessing.resource_tracker" in (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return False


def boot_id() -> str:
    """Return an ID of this boot of this machine."""
    return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def this_machine() -> str:
    """Return an ID of this boot of this machine and this container, within which process IDs are valid."""
    return f"{boot_id()} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115 - the link's text is no path


def has_own_pids() -> bool:
    """Return whether this is a container in which process IDs are not those of the machine."""
    try:
        return os.readlink(_PROC / "self/ns/pid") != _FIRST_NAMESPACE  # noqa: PTH115 - the link's text is no path
    except OSError:
        return False


def machine_hash() -> str:
    """Return a hash of this boot and container, short enough for a file name."""
    return hashlib.sha256(this_machine().encode()).hexdigest()[:16]


def _link(pid: int, number: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/fd/{number}")  # noqa: PTH115 - the link's text may be no path
    except OSError:
        return ""
