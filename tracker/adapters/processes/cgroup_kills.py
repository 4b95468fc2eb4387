"""Which processes the kernel has killed for memory, as their cgroups count them."""

from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
MAX_BYTES = 16 << 10
_COUNTS = ("memory.events", "memory.oom_control")
"""Files of version 2 and of version 1."""


def memory_cgroup(pid: int, *, proc: Path = PROC, cgroups: Path = CGROUPS) -> Path | None:
    """Return the folder that counts the memory of a process; None: there is none that can be read.

    In a container the path may be that of the host, which is not mounted: the root is its own then.
    """
    for line in _text(proc / str(pid) / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top = cgroups / "memory" if controllers else cgroups
        for folder in (top / path.strip("/"), top):
            if any((folder / name).is_file() for name in _COUNTS):
                return folder
    return None


def memory_kills(folder: Path) -> int:
    """Return how many processes were killed in a cgroup since it exists; 0 if it does not say."""
    for name in _COUNTS:
        for line in _text(folder / name).splitlines():
            key, _, value = line.partition(" ")
            if key == "oom_kill" and value.strip().isdecimal():
                return int(value)
    return 0


def _text(path: Path) -> str:
    with suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
        return file.read(MAX_BYTES)
    return ""
