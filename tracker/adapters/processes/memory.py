"""The memory of processes: what forked workers share with their parent counts once.

Pages of files do not count: a mapped data set fills them without a leak. Reading takes the lock of an address space,
which a process that hangs in the kernel may hold: it is done in a thread.
"""

from collections.abc import Collection
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from eval_jobs.host.bounded.answers import in_thread
from tracker.adapters.host.kernel_files import fields_of

TIMEOUT_S = 5.0


@dataclass(kw_only=True)
class ProcessMemory:
    """Reads the memory of processes."""

    root: Path
    timeout_s: float = TIMEOUT_S
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
