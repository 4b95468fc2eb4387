"""Facts about a machine that decide whether a training can run on it. None: not known."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

UNLIMITED = math.inf
IPC_LOCK, SYS_PTRACE, SYS_RESOURCE = 14, 19, 24
"""Numbers of capabilities (include/uapi/linux/capability.h)."""


class LaunchPlace(StrEnum):
    """What started this process, and therefore decides its limits."""

    SHELL = "shell"
    SYSTEMD = "systemd"
    CONTAINER = "container"
    KUBERNETES = "kubernetes"
    SLURM = "slurm"


class Resource(StrEnum):
    """A limit of each process; the value is its name in /proc/PID/limits."""

    LOCKED = "Max locked memory"
    FILES = "Max open files"
    PROCESSES = "Max processes"


@dataclass(frozen=True, kw_only=True)
class Rlimit:
    """A limit, and the value up to which its owner may raise it."""

    soft: float
    hard: float


@dataclass(frozen=True, kw_only=True)
class Host:
    """What a process may do here."""

    place: LaunchPlace = LaunchPlace.SHELL
    has_systemd: bool = False
    """systemd runs here and can start a scope."""
    is_root: bool = False
    capabilities: int = 0
    """Bits of those in effect."""
    limits: Mapping[Resource, Rlimit] = field(default_factory=dict)
    process_room: float | None = None
    """Processes and threads that the cgroups still permit."""
    has_infiniband: bool = False
    has_py_spy: bool = True
    ptrace_scope: int = 0
    """Of the kernel module Yama; 0 also without it."""
    is_clock_synchronized: bool | None = None
    nodes: int = 1
    """Machines of the job."""

    def may(self, capability: int) -> bool:
        """Return whether this process has a capability."""
        return bool(self.capabilities >> capability & 1)


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Memory of the machine, and of the cgroup with the lowest limit among this one and those above it."""

    total_bytes: int
    available_bytes: int
    limit_bytes: int | None = None
    """Less than `total_bytes`. None: no limit."""
    limited_at: str = ""
    """Folder of that cgroup."""
    limit_room_bytes: int | None = None
    """What all cgroups still permit; files in the page cache that can be dropped count as free."""
    swap_bytes: int = 0
    swap_free_bytes: int = 0

    @property
    def room_bytes(self) -> int:
        """Memory that a training can take."""
        if self.limit_room_bytes is None:
            return self.available_bytes
        return min(self.available_bytes, self.limit_room_bytes)


@dataclass(frozen=True, kw_only=True)
class Volume:
    """A file system at a folder."""

    folder: str
    total_bytes: int
    free_bytes: int
    free_files: int | None = None
    """None: it does not count them."""
    is_writable: bool = True


@dataclass(frozen=True, kw_only=True)
class Network:
    """What the ranks of a job use to find each other."""

    master_port: str = ""
    """The variable MASTER_PORT."""
    is_master: bool = True
    """MASTER_ADDR is this machine, or not set."""
    listening: frozenset[int] | None = None
    socket_ifname: str = ""
    """The variable NCCL_SOCKET_IFNAME."""
    interfaces: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GpuProcess:
    """A process on a GPU that runs before the training does."""

    pid: int
    user: str
    """Empty: not known."""


@dataclass(frozen=True, kw_only=True)
class TrainingGpu:
    """One GPU that a training would use."""

    index: int
    is_lost: bool = False
    """It has fallen off the bus; nothing else is known of it."""
    memory_bytes: int | None = None
    free_bytes: int | None = None
    ecc_errors: int | None = None
    """Uncorrected, since the driver was loaded."""
    is_persistent: bool | None = None
    processes: tuple[GpuProcess, ...] | None = None

    @property
    def used_bytes(self) -> int | None:
        """Memory in use."""
        if self.memory_bytes is None or self.free_bytes is None:
            return None
        return self.memory_bytes - self.free_bytes


@dataclass(frozen=True, kw_only=True)
class TrainingGpus:
    """The GPUs that a training would use, or why they are not known."""

    gpus: tuple[TrainingGpu, ...] = ()
    driver: str = ""
    why_unknown: str = ""
    is_silent: bool = False
    """They did not respond in time."""
