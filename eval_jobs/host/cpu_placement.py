"""Which cores a process uses and how nice it is, where an engine on the CPU leaves one core to all others.

vLLM on a CPU binds its worker to all cores but one, and everything else runs wherever the system puts it. Its scheduler
polls the worker without a rest: on the one core that is left, it halves the pace of the server and of the clients; on a
core of the worker, which computes while the scheduler waits, it costs nothing. Anything else there slows the worker.
What a system does not know is left out.
"""

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from eval_jobs.host import proc

CLIENT_NICENESS = 5
"""Beyond the engine's: its server answers first and sends what waits, and answers are scored meanwhile."""
MAX_NICENESS = 19
NS = 1e-9


class CpuAffinity:
    """The cores of this process, while somebody else wishes that it uses certain ones."""

    def __init__(self) -> None:
        self._own: frozenset[int] = frozenset()
        """Those it had before; empty: nobody wished anything."""

    def set(self, cores: Collection[int]) -> None:
        """Run on these cores from now on; empty: where this process would run by itself."""
        if cores:
            self._own = self._own or usable_cores()
            run_on(os.getpid(), cores)
        elif self._own:
            run_on(os.getpid(), self._own)
            self._own = frozenset()


def share_cores(engine: Collection[int]) -> tuple[int, ...]:
    """Leave the cores of a vLLM's workers to them and to the processes that started them, its schedulers.

    All its other processes are put on the core that is left.

    Args:
        engine: its processes, which answer already: a worker binds its threads when it first computes.

    Returns:
        The core that is left, where clients should run too; () where no process is bound to cores or all are, or where
        more than one core is left: then nothing has changed.
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
    """Return how nice a client is that has much to do on the core of the server with this process id."""
    try:
        niceness = os.getpriority(os.PRIO_PROCESS, engine)
    except OSError:  # it has ended
        niceness = 0
    return min(MAX_NICENESS, niceness + CLIENT_NICENESS)


def set_niceness(group: int, niceness: int) -> None:
    """Make a process group nicer to others, with all that it will start. There is no way back.

    Where Linux shares the CPU out by sessions first (`autogroup`), the niceness of a process counts within its own
    session only, so the session gets it too.
    """
    if niceness <= 0:
        return
    with suppress(OSError):  # it ended, or this process is no Linux one
        niceness = max(niceness, os.getpriority(os.PRIO_PGRP, group))
        os.setpriority(os.PRIO_PGRP, group, niceness)
    with suppress(OSError):  # not every Linux has it, and not every container lets it be written
        Path(f"/proc/{group}/autogroup").write_text(f"{niceness}\n", encoding="ascii")


def run_first() -> None:
    """Ask to run before ordinary processes, where that is allowed (root, CAP_SYS_NICE); else do nothing.

    A client that times answers must not measure its own wait for a CPU: where an engine spins on a machine with few
    cores, a median TTFT of 12 ms then reads as 170 ms and TPOT as 0. A realtime class, because niceness counts only
    among the processes of one session. The client needs little time.
    """
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(os.sched_get_priority_min(os.SCHED_RR)))


def waited_for_cpu_s() -> float:
    """Return how long this thread was ready to run and did not, since its start; 0 where the kernel does not say."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1]) * NS
    except (OSError, ValueError, IndexError):
        return 0.0


def usable_cores() -> frozenset[int]:
    """Return the numbers of the cores that the calling thread may use; empty where nothing says so."""
    return _mask(0)


def bound_cores(pid: int, usable: frozenset[int]) -> frozenset[int]:
    """Return the cores that threads of process `pid` are bound to: those of every thread that may not use all `usable`.

    Each thread of OpenMP may have one core of its own, so that the main one alone does not tell.
    """
    masks = map(_mask, _threads(pid))
    return frozenset[int]().union(*(mask for mask in masks if mask < usable))


def run_on(pid: int, cores: Collection[int]) -> None:
    """Let every thread of process `pid`, and all that they start, run on these cores only."""
    done: set[int] = set()
    while new := [thread for thread in _threads(pid) if thread not in done]:  # some may start others meanwhile
        for thread in new:
            with suppress(OSError):
                os.sched_setaffinity(thread, cores)
        done.update(new)


# --- private


def _mask(thread: int) -> frozenset[int]:
    try:
        return frozenset(os.sched_getaffinity(thread))
    except (AttributeError, OSError):  # no Linux, or it has ended
        return frozenset()


def _threads(pid: int) -> list[int]:
    try:
        return [int(thread.name) for thread in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []
