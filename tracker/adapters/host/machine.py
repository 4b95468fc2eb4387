"""Limits, memory, disks and network of this machine. `root` is `/`, or a folder that looks like it."""

import ctypes
import os
import re
import shutil
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from tracker.adapters.host.cgroups import memory_limits, paths, process_room
from tracker.adapters.host.kernel_files import fields_of, number_of_file, text_in
from tracker.domain.readiness.training.facts import (
    UNLIMITED,
    Host,
    LaunchPlace,
    Memory,
    Network,
    Resource,
    Rlimit,
    Volume,
)

ROOT = Path("/")
_CONTAINER_PATH = re.compile("docker|containerd|libpod|lxc|crio")
_TIME_ERROR = 5
"""Of adjtimex(2): the clock is not synchronized."""
_TIMEX_BYTES = 512
"""More than the size of `struct timex`, whose first field says that nothing is set: 0."""
_LISTEN = "0A"
"""The state in /proc/net/tcp (include/net/tcp_states.h)."""


def read_host(root: Path = ROOT, environment: Mapping[str, str] = os.environ) -> Host:
    """Return what a process may do here."""
    status = dict(re.findall(r"^(\w+):\s+(\S+)", text_in(root / "proc/self/status"), re.MULTILINE))
    # root of another user namespace has none of these rights outside of it
    is_own = text_in(root / "proc/self/uid_map").split() in ([], ["0", "0", "4294967295"])
    nodes = environment.get("SLURM_NNODES") or environment.get("SLURM_JOB_NUM_NODES") or environment.get("NNODES", "")
    return Host(
        place=_place(root, environment),
        has_systemd=(root / "run/systemd/system").is_dir(),
        is_root=is_own and status.get("Uid") == "0",
        capabilities=int(status.get("CapEff", "0"), 16) if is_own else 0,
        limits=_limits(text_in(root / "proc/self/limits")),
        process_room=process_room(root),
        has_infiniband=_has_entries(root / "sys/class/infiniband"),
        has_py_spy=py_spy() is not None,
        ptrace_scope=number_of_file(root / "proc/sys/kernel/yama/ptrace_scope") or 0,
        is_clock_synchronized=_is_clock_synchronized(root),
        nodes=int(nodes) if nodes.isdecimal() else 1,
    )


def py_spy() -> str | None:
    """Return the program that reads stacks: beside this Python, else in PATH; None: it is not installed."""
    beside = Path(sys.executable).parent / "py-spy"
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("py-spy")


def read_memory(root: Path = ROOT) -> Memory | None:
    """Return the memory of the machine and of the cgroups of this process; None: not known."""
    found = {name: kib << 10 for name, kib in fields_of(root / "proc/meminfo").items()}
    if "MemTotal" not in found:
        return None
    total = found["MemTotal"]
    levels = [level for level in memory_limits(root) if level.limit < total]
    lowest = min(levels, key=lambda level: level.limit, default=None)
    return Memory(
        total_bytes=total,
        available_bytes=found.get("MemAvailable", found.get("MemFree", 0)),
        limit_bytes=None if lowest is None else lowest.limit,
        limited_at="" if lowest is None else lowest.folder,
        limit_room_bytes=min((max(0, level.limit - level.used) for level in levels), default=None),
        swap_bytes=found.get("SwapTotal", 0),
        swap_free_bytes=found.get("SwapFree", 0),
    )


def read_volume(folder: Path) -> Volume | None:
    """Return the file system of a folder, or of the nearest one above it that exists; None: not readable."""
    try:
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        found = os.statvfs(folder)
    except OSError:
        return None
    return Volume(
        folder=str(folder),
        total_bytes=found.f_blocks * found.f_frsize,
        free_bytes=found.f_bavail * found.f_frsize,
        free_files=found.f_favail if found.f_files else None,
        is_writable=os.access(folder, os.W_OK),
    )


def read_network(root: Path = ROOT, environment: Mapping[str, str] = os.environ) -> Network:
    """Return the variables of a distributed training, and what they name on this machine."""
    interfaces = root / "sys/class/net"
    return Network(
        master_port=environment.get("MASTER_PORT", ""),
        is_master=_is_here(environment.get("MASTER_ADDR", "")),
        listening=_listening(root),
        socket_ifname=environment.get("NCCL_SOCKET_IFNAME", ""),
        interfaces=tuple(sorted(one.name for one in interfaces.iterdir())) if interfaces.is_dir() else (),
    )


def _place(root: Path, environment: Mapping[str, str]) -> LaunchPlace:
    own = " ".join(paths(root).values())
    if "SLURM_JOB_ID" in environment or "/slurm" in own:
        return LaunchPlace.SLURM
    if "KUBERNETES_SERVICE_HOST" in environment or "kubepods" in own:
        return LaunchPlace.KUBERNETES
    marks = ("container" in environment, (root / ".dockerenv").exists(), (root / "run/.containerenv").exists())
    if any(marks) or _CONTAINER_PATH.search(own):
        return LaunchPlace.CONTAINER
    # A login shell is in a scope below user.slice; user@1000.service holds the scopes of a desktop.
    if re.search(r"/system\.slice/.*\.service", own):
        return LaunchPlace.SYSTEMD
    return LaunchPlace.SHELL


def _limits(text: str) -> dict[Resource, Rlimit]:
    found = {}
    for resource in Resource:
        match = re.search(rf"^{resource}\s+(\w+)\s+(\w+)", text, re.MULTILINE)
        if match is not None:
            soft, hard = (UNLIMITED if value == "unlimited" else float(value) for value in match.groups())
            found[resource] = Rlimit(soft=soft, hard=hard)
    return found


def _is_clock_synchronized(root: Path) -> bool | None:
    """Return whether systemd or another NTP client has set the clock; only the kernel knows the latter."""
    if (root / "run/systemd/timesync/synchronized").exists():
        return True
    with suppress(OSError, AttributeError):  # another C library, or no right to ask
        state: int = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
        return state != _TIME_ERROR if state >= 0 else None
    return None


def _listening(root: Path) -> frozenset[int] | None:
    texts = [text_in(root / "proc/net" / name) for name in ("tcp", "tcp6")]
    if not any(texts):
        return None
    rows = (line.split() for text in texts for line in text.splitlines()[1:])
    return frozenset(int(row[1].rpartition(":")[2], 16) for row in rows if len(row) > 3 and row[3] == _LISTEN)


def _is_here(address: str) -> bool:
    """Return whether MASTER_ADDR names this machine, without asking a name server."""
    own = {"", "localhost", socket.gethostname(), *(a.address for all_ in psutil.net_if_addrs().values() for a in all_)}
    return address in own or address.partition(".")[0] == socket.gethostname().partition(".")[0]


def _has_entries(folder: Path) -> bool:
    try:
        return any(folder.iterdir())
    except OSError:
        return False
