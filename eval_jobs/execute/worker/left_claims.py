"""Requeues the plans of dead workers on this machine without waiting for their leases to expire.

Claims of running processes are never touched, nor claims of other machines or containers: those processes cannot be
checked, and their leases decide. One exception: a worker that was stopped (SIGSTOP, Ctrl-Z) and whose lease has expired
is killed. It would keep the plan's folder locked and its engine in GPU memory while it is stopped, and its later work
would be useless.
"""

import contextlib
import logging
import os
import signal
from datetime import datetime
from pathlib import Path

from eval_jobs.execute.worker_name import WorkerName, oom_kills, parse_name
from eval_jobs.host import proc
from eval_jobs.host.bounded.files import tail_of
from eval_jobs.ports import HoldRegistry
from eval_jobs.queue_types import Hold, HoldEnd

log = logging.getLogger(__name__)

UNEXPECTED_END = "worker exiting after an unexpected error"
_SIGNS_OF_A_CRASH = (b"Fatal Python error: ", UNEXPECTED_END.encode())
"""In a worker's log. The first is written by Python's faulthandler, for example after a segmentation fault."""
_STOPPED = "T"
"""Stopped by a signal; a process under a debugger has another state."""


def take_back_left_claims(queue: HoldRegistry, own: str, now: datetime) -> int:
    """Requeue the plans of this machine's dead workers, and return their number.

    Call it only while the worker `own` has no plan: a claim in its name is then one whose reply was lost.

    Raises:
        StoreError: the queue does not respond.
    """
    taken = 0
    for hold in queue.holds():
        end = HoldEnd.INTERRUPTED if hold.worker == own else _end_of(hold, now)
        if end is not None and queue.take_back(hold, end):
            taken += 1
            log.warning("requeued plan %s of worker %s (%s)", hold.plan_id, hold.worker, end)
    return taken


def _end_of(hold: Hold, now: datetime) -> HoldEnd | None:
    """Return how the holder ended; None while it may still be running."""
    name = parse_name(hold.worker)
    if name is None or name.machine != proc.machine_hash():
        return None
    if _is_gone(name):
        if _has_crashed(name):
            return HoldEnd.CRASHED
        return HoldEnd.KILLED
    if hold.lease_until <= now and _is_stopped(name):
        log.warning("killing stopped worker %d: its lease expired", name.pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(name.pid, signal.SIGKILL)
            return HoldEnd.KILLED
    return None


def _is_gone(name: WorkerName) -> bool:
    try:
        os.kill(name.pid, 0)  # also finds processes that /proc may hide
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    found = proc.stat(name.pid)
    return found is not None and not (found.alive and found.start_time == name.started)


def _is_stopped(name: WorkerName) -> bool:
    found = proc.stat(name.pid)
    return found is not None and found.start_time == name.started and found.state == _STOPPED


def _has_crashed(name: WorkerName) -> bool:
    """Return whether the plan may have crashed the worker: its log shows it, or the machine ran out of memory.

    A worker that is killed from outside leaves no such line.
    """
    if oom_kills() > name.oom_kills:
        return True
    try:
        tail = tail_of(Path(name.log))
    except OSError:
        return True  # no evidence of another cause
    return any(sign in tail for sign in _SIGNS_OF_A_CRASH)
