"""CPU affinity and niceness of processes on a machine where an engine on the CPU leaves one core to all others.

vLLM on a CPU binds its worker to all cores but one, and all other processes run wherever the system puts them. Its
scheduler polls the worker in a busy loop. On the one remaining core, it halves the speed of the server and the clients.
On a core of the worker, it costs nothing, because the worker computes while the scheduler waits. Any other process
there slows down the worker. Features that a system lacks are skipped.
"""

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from eval_jobs.host import proc

CLIENT_NICENESS = 5
"""Added to the engine's: its server responds and sends pending data first, and clients score answers meanwhile."""
MAX_NICENESS = 19
NS = 1e-9


class CpuAffinity:
    """CPU affinity of this process, which can be set and restored."""

    def __init__(self) -> None:
        self._own: frozenset[int] = frozenset()
        """Cores before the first change. Empty: not changed."""

    def set(self, cores: Collection[int]) -> None:
        """Run on these cores from now on; empty: restore the original cores."""
        if cores:
            self._own = self._own or usable_cores()
            run_on(os.getpid(), cores)
        elif self._own:
            run_on(os.getpid(), self._own)
            self._own = frozenset()


def share_cores(engine: Collection[int]) -> tuple[int, ...]:
    """Reserve the cores of vLLM's workers for them and for the processes that started them, its schedulers.

    All other processes of the engine move to the remaining core.

    Args:
        engine: process IDs of an engine that already responds: a worker binds its threads when it first computes.

    Returns:
        The remaining core, where clients should run too. (), without any change, if no process or every process is
        bound to cores, or if the number of remaining cores is not one.
    """
    usable = usable_cores()
    bound = {pid: bound_cores(pid, usable) for pid in engine}
    workers = set(filter(bound.get, bound))
    computing = frozenset[int]().union(*bound.values())
    left = usable - computing
    if not workers or len(workers) == len(bound) or len(left) != 1:
        return ()
    schedulers = {worker.parent for worker in map(proc.stat, workers) if worker is not None}
    for pid in bound.keys() - workers:
        run_on(pid, computing if pid in schedulers else left)
    return tuple(left)


def client_niceness(engine: int) -> int:
    """Return the nice value for a busy client on the core of the server with process ID `engine`."""
    try:
        niceness = os.getpriority(os.PRIO_PROCESS, engine)
    except OSError:  # it has ended
        niceness = 0
    return min(MAX_NICENESS, niceness + CLIENT_NICENESS)


def set_niceness(group: int, niceness: int) -> None:
    """Raise the niceness of a process group and of its future child processes. It cannot be lowered again.

    If Linux divides the CPU by sessions first (`autogroup`), the niceness of a process applies only within its own
    session. Therefore the session gets it too.
    """
    if niceness <= 0:
        return
    with suppress(OSError):  # it has ended, or the system is not Linux
        niceness = max(niceness, os.getpriority(os.PRIO_PGRP, group))
        os.setpriority(os.PRIO_PGRP, group, niceness)
    with suppress(OSError):  # missing on some systems, not writable in some containers
        Path(f"/proc/{group}/autogroup").write_text(f"{niceness}\n", encoding="ascii")


def run_first() -> None:
    """Request scheduling before ordinary processes, if permitted (root, CAP_SYS_NICE); else do nothing.

    A client that times responses must not measure its own wait for a CPU: with a busy-waiting engine on a machine with
    few cores, a median TTFT of 12 ms is measured as 170 ms and TPOT as 0. It uses a realtime class, because niceness
    counts only among the processes of one session. The client needs little CPU time.
    """
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(os.sched_get_priority_min(os.SCHED_RR)))


def waited_for_cpu_s() -> float:
    """Return the seconds that this thread has waited for a CPU since its start; 0 if the kernel does not report it."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1]) * NS
    except (OSError, ValueError, IndexError):
        return 0.0


def usable_cores() -> frozenset[int]:
    """Return the numbers of the cores that the calling thread may use; empty if unknown."""
    return _mask(0)


def bound_cores(pid: int, usable: frozenset[int]) -> frozenset[int]:
    """Return the cores to which threads of process `pid` are bound: those of every thread restricted within `usable`.

    Each OpenMP thread may be bound to a core of its own, so the main thread alone is not sufficient.
    """
    masks = map(_mask, _threads(pid))
    return frozenset[int]().union(*(mask for mask in masks if mask < usable))


def run_on(pid: int, cores: Collection[int]) -> None:
    """Restrict every thread of process `pid`, and the threads that they start, to these cores."""
    done: set[int] = set()
    while new := [thread for thread in _threads(pid) if thread not in done]:  # threads may start others meanwhile
        for thread in new:
            with suppress(OSError):
                os.sched_setaffinity(thread, cores)
        done.update(new)


def _mask(thread: int) -> frozenset[int]:
    try:
        return frozenset(os.sched_getaffinity(thread))
    except (AttributeError, OSError):  # not Linux, or the thread has ended
        return frozenset()


def _threads(pid: int) -> list[int]:
    try:
        return [int(thread.name) for thread in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []
