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
MAX_BYTES = 1 << 20
"""Of a file that is read: only a list of arguments can be longer."""
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
    text = process_file(pid, "stat")
    if not text:
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


def exists(pid: int) -> bool:
    """Return whether there is a process `pid`, also where nothing of it may be read, or no descriptor is left."""
    return os.path.exists(_path(pid, ""))  # noqa: PTH110 - see `_path`


def pids() -> list[int]:
    """Return the numbers of all processes that are visible, zombies included; none without /proc."""
    try:
        names = os.listdir(_PROC)  # noqa: PTH208 - see `_path`
    except OSError:
        return []
    return [int(name) for name in names if name.isdigit()]


def every_process() -> Iterator[ProcessStat]:
    """Yield all processes that are visible, zombies included."""
    for pid in pids():
        found = stat(pid)
        if found is not None:
            yield found


def process_file(pid: int, name: str) -> str:
    """Return the text of /proc/PID/`name`; empty: it may not be read, or there is no such process."""
    try:
        with open(_path(pid, name), "rb") as file:  # noqa: PTH123 - see `_path`
            return file.read(MAX_BYTES).decode(errors="replace")
    except OSError:
        return ""


def names_in(pid: int, name: str) -> list[str]:
    """Return the names in the folder /proc/PID/`name`; none: it may not be read, or there is no such process."""
    try:
        return os.listdir(_path(pid, name))  # noqa: PTH208 - see `_path`
    except OSError:
        return []


def link_of(pid: int | str, name: str) -> str:
    """Return the text of the link /proc/PID/`name`; empty: it may not be read, or there is no such process."""
    try:
        return os.readlink(_path(pid, name))  # noqa: PTH115 - see `_path`
    except OSError:
        return ""


def _path(pid: int | str, name: str) -> str:
    """Return a place in /proc as text: thousands are read in a second, and a `Path` takes longer than the reading."""
    return f"{_PROC}/{pid}/{name}"


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
    return any(link_of(pid, f"fd/{number}").removesuffix(" (deleted)") == str(path) for number in (1, 2))


def error_file(pid: int) -> Path | None:
    """Return the file of the standard error of process `pid`, even if it is deleted; None if there is none."""
    target = link_of(pid, "fd/2").removesuffix(" (deleted)")
    if target.startswith("/"):
        return Path(target)
    return None


def is_resource_tracker(pid: int) -> bool:
    """Return whether `pid` is Python's resource tracker for shared memory, which ends by itself after its parents."""
    return "multiprocessing.resource_tracker" in process_file(pid, "cmdline")


def boot_id() -> str:
    """Return an ID of this boot of this machine."""
    return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def this_machine() -> str:
    """Return an ID of this boot of this machine and this container, within which process IDs are valid."""
    return f"{boot_id()} {link_of('self', 'ns/pid')}"


def has_own_pids() -> bool:
    """Return whether this is a container in which process IDs are not those of the machine."""
    return link_of("self", "ns/pid") not in ("", _FIRST_NAMESPACE)


def machine_hash() -> str:
    """Return a hash of this boot and container, short enough for a file name."""
    return hashlib.sha256(this_machine().encode()).hexdigest()[:16]
