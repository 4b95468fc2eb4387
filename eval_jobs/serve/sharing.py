"""Shares few cores out between an engine and those who ask it, where the engine computes on cores of its own.

vLLM on a CPU binds its worker to all cores but one, and everything else runs wherever the system puts it. Its scheduler
polls the worker without a rest: on the one core that is left, it halves the pace of the server and of the clients; on a
core of the worker, which computes while the scheduler waits, it costs nothing. Anything else there slows the worker.
"""

from __future__ import annotations

import os
from collections.abc import Collection

from eval_jobs.scheduling import run_on, usable_cores
from eval_jobs.serve import proc
from eval_jobs.types import ServeSpec

CLIENT_NICENESS = 5
"""Beyond the engine's. Its server hands out the next questions first, and answers are scored meanwhile."""
MAX_NICENESS = 19


def share_cores(engine: Collection[int]) -> tuple[int, ...]:
    """Leave the cores of an engine's workers to them and to the processes that started them.

    All its other processes are put on the core that is left.

    Args:
        engine: its processes, which have just been started.

    Returns:
        The core that is left, where clients should run too; () where none of the processes is bound to cores, as on a
        GPU, or where more than one is left: then nothing has changed.
    """
    usable = usable_cores(os.getpid())
    found = {pid: usable_cores(pid) for pid in engine}
    workers = {pid: cores for pid, cores in found.items() if cores and cores < usable}
    computing = frozenset[int]().union(*workers.values())
    left = usable - computing
    if not workers or len(left) != 1:
        return ()
    schedulers = {worker.parent for pid in workers if (worker := proc.stat(pid)) is not None}
    for pid in found.keys() - workers.keys():
        run_on(pid, computing if pid in schedulers else left)
    return tuple(left)


def client_niceness(spec: ServeSpec) -> int:
    """Return how nice a client is that has much to do on the core of the engine's server."""
    return min(MAX_NICENESS, spec.niceness + CLIENT_NICENESS)
