"""Shares few cores out between an engine and those who ask it, where the engine computes on cores of its own.

vLLM on a CPU binds its worker to all cores but one, and everything else runs wherever the system puts it. Its scheduler
polls the worker without a rest: on the one core that is left, it halves the pace of the server and of the clients; on a
core of the worker, which computes while the scheduler waits, it costs nothing. Anything else there slows the worker.
"""

from __future__ import annotations

from collections.abc import Collection

from eval_jobs.host import proc
from eval_jobs.host.scheduling import bound_cores, niceness_of, run_on, usable_cores

CLIENT_NICENESS = 5
"""Beyond the engine's: its server answers first and sends what waits, and answers are scored meanwhile."""
MAX_NICENESS = 19


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
    workers = [pid for pid, cores in bound.items() if cores]
    computing = frozenset[int]().union(*bound.values())
    left = usable - computing
    if not workers or len(workers) == len(bound) or len(left) != 1:
        return ()
    schedulers = {worker.parent for pid in workers if (worker := proc.stat(pid)) is not None}
    for pid in bound.keys() - workers:
        run_on(pid, computing if pid in schedulers else left)
    return tuple(left)


def client_niceness(engine: int) -> int:
    """Return how nice a client is that has much to do on the core of the engine's server.

    Args:
        engine: id of the server's process.
    """
    return min(MAX_NICENESS, niceness_of(engine) + CLIENT_NICENESS)
