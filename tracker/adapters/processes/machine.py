"""`tracker.ports.Machine`: what this machine says of the processes of a training."""

import logging
import shutil
from collections.abc import Collection
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from eval_jobs.errors import ConfigError
from eval_jobs.host.bounded.answers import in_thread
from eval_jobs.host.nvml.gpu_health import read_gpu_health
from eval_jobs.records.gpu_health import GpuHealth
from tracker.adapters.host.cgroups import memory_limits
from tracker.adapters.host.kernel_files import fields_of
from tracker.adapters.processes.kernel_log import KernelLog
from tracker.domain.health.processes.kernel_messages import pci_place
from tracker.domain.health.processes.leaks import Usage
from tracker.domain.health.processes.seen import ProcessId

log = logging.getLogger(__name__)

ROOT = Path("/")
GPU_TIMEOUT_S = 5.0
MEMORY_TIMEOUT_S = 5.0


@dataclass(kw_only=True)
class ProcessMemory:
    """Reads the memory of processes: what forked workers share with their parent counts once.

    Pages of files do not count: a mapped data set fills them without a leak. Reading takes the lock of an address
    space, which a process that hangs in the kernel may hold: it is done in a thread.
    """

    root: Path
    timeout_s: float = MEMORY_TIMEOUT_S
    _reading: Future[int | None] | None = None

    def of(self, pids: Collection[int]) -> int | None:
        """Return the memory of processes together, in bytes; None: not readable, or not in time."""
        if self._reading is not None and not self._reading.done():
            return None
        with suppress(RuntimeError, TimeoutError):  # no more threads, or no answer
            self._reading = in_thread("memory", lambda: _together(self.root, pids))
            return self._reading.result(self.timeout_s)
        return None


def _together(root: Path, pids: Collection[int]) -> int | None:
    found = [size for pid in pids if (size := _kib(root, pid, pids)) is not None]
    return sum(found) << 10 if found else None


def _kib(root: Path, pid: int, pids: Collection[int]) -> int | None:
    """Return the share of a process; without a kernel that divides shared pages, a forked worker has none."""
    folder = root / "proc" / str(pid)
    share = fields_of(folder / "smaps_rollup").get("Pss_Anon")
    if share is not None:
        return share
    own = fields_of(folder / "status").get("RssAnon")
    return None if own is None or _is_forked(pid, pids) else own


def _is_forked(pid: int, pids: Collection[int]) -> bool:
    with suppress(psutil.Error, OSError):
        process = psutil.Process(pid)
        parent = process.ppid()
        return parent in pids and psutil.Process(parent).cmdline() == process.cmdline()
    return False


@dataclass(kw_only=True)
class SystemMachine:
    """Reads /proc, the cgroups, the kernel's messages and NVML."""

    root: Path = ROOT
    kernel: KernelLog = field(default_factory=KernelLog)
    _has_gpus: bool | None = None
    """None: they were not read yet."""
    _is_reported: bool = False
    """Whether it was logged that the GPUs cannot be read now."""
    _reading: Future[tuple[GpuHealth, ...]] | None = None
    _places: dict[int, str] = field(default_factory=dict)
    """PCI addresses of the GPUs of the last reading, by their index; empty: not known."""

    def __post_init__(self) -> None:
        self._memory = ProcessMemory(root=self.root)

    def kernel_lines(self, pids: Collection[int]) -> list[str]:
        """Return new messages of the kernel; see `ports.Machine`."""
        places = set(self._places.values())
        return self.kernel.lines(pids, None if "" in places else places or None)

    def usage(self, ids: Collection[ProcessId]) -> Usage:
        """Return what processes use; see `ports.Machine`."""
        descriptors, shared = _descriptors(ids), _shared(self.root / "dev/shm")
        return Usage(
            memory_bytes=self._memory.of([one.pid for one in ids]),
            memory_limit_bytes=self._memory_limit_bytes(ids),
            descriptors=None if descriptors is None else descriptors[0],
            descriptor_limit=None if descriptors is None else descriptors[1],
            shared_bytes=None if shared is None else shared[0],
            shared_limit_bytes=None if shared is None else shared[1],
        )

    def gpus(self, pids: Collection[int]) -> tuple[GpuHealth, ...]:
        """Return the GPUs of processes; see `ports.Machine`. A machine without GPUs is asked once."""
        found = () if self._has_gpus is False else self._read_gpus()
        used = tuple(gpu for gpu in found if gpu.is_lost or _is_used(gpu, pids))
        used = used if any(not gpu.is_lost for gpu in used) else found
        self._note_places(used)
        return used

    def _note_places(self, gpus: tuple[GpuHealth, ...]) -> None:
        """Note where the GPUs of the processes are; of a lost one, only where it was."""
        known = self._places
        if gpus:
            self._places = {gpu.index: pci_place(gpu.device.pci_bus_id or "") for gpu in gpus if not gpu.is_lost}
            self._places |= {gpu.index: known[gpu.index] for gpu in gpus if gpu.is_lost and gpu.index in known}

    def _read_gpus(self) -> tuple[GpuHealth, ...]:
        """Read all GPUs; NVML may hang when one is lost, and is not asked again before it has answered."""
        if self._reading is None:
            self._reading = in_thread("GPUs", read_gpu_health)
        try:
            found = self._reading.result(GPU_TIMEOUT_S)
        except NotYet:
            self._report("NVML does not respond")
            return ()
        except Exception as error:  # noqa: BLE001 - pynvml raises several kinds
            why = error.message if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
            if self._has_gpus is None:
                self._has_gpus = False
                log.info("GPUs are not watched: %s", why)
            else:
                self._report(why)
            self._reading = None
            return ()
        self._has_gpus, self._is_reported, self._reading = True, False, None
        return found

    def _report(self, why: str) -> None:
        if not self._is_reported:
            self._is_reported = True
            log.warning("GPUs cannot be read now: %s", why)

    def _memory_limit_bytes(self, ids: Collection[ProcessId]) -> int | None:
        limits = []
        with suppress(psutil.Error, OSError, ValueError, KeyError):
            limits.append(psutil.virtual_memory().total)
        for one in ids:
            limits += (level.limit for level in memory_limits(self.root, one.pid))
        return min(limits, default=None)


def _descriptors(ids: Collection[ProcessId]) -> tuple[int, int] | None:
    """Return the open files, and their limit, of the process that is nearest to it."""
    found: tuple[int, int] | None = None
    for one in ids:
        with suppress(psutil.Error, OSError, AttributeError):
            process = psutil.Process(one.pid)
            count, limit = process.num_fds(), int(process.rlimit(psutil.RLIMIT_NOFILE)[0])
            if limit > 0 and (found is None or count * found[1] > found[0] * limit):
                found = count, limit
    return found


def _shared(folder: Path) -> tuple[int, int] | None:
    """Return the used and all bytes of a file system in memory."""
    with suppress(OSError):
        found = shutil.disk_usage(folder)
        return found.used, found.total
    return None


def _is_used(gpu: GpuHealth, pids: Collection[int]) -> bool:
    memory = gpu.memory
    return memory is not None and any(pid in pids for pid in memory.by_process or ())
