"""Finds and ends processes that a killed worker left behind. Unrelated processes are never touched.

    reap_orphans(work_dir)     # before every start of an engine: workers, `tracker evaluate`, gate

An engine leaves a PID file (see `serve.process`). An evaluator ends by itself when its worker dies, unless it is stuck.
It is identified by its log: the name contains the process and machine that started it, and no other process writes to
it. A program name or a port is never sufficient: an unrelated process may have the same.
"""

import logging
import os
import re
import signal
from contextlib import suppress
from pathlib import Path

from eval_jobs.host import proc
from eval_jobs.host.clock import SystemClock
from eval_jobs.serve.process.lifecycle import reap

log = logging.getLogger(__name__)

_EVALUATOR_LOG = re.compile(r"evaluator-(\d+)-(\d+)-([0-9a-f]+)\.log")


def evaluator_log_name() -> str:
    """Return the name of the log for evaluators that this process starts: process id, start time and machine."""
    if not proc.is_visible():
        return f"evaluator-{os.getpid()}.log"
    return f"evaluator-{os.getpid()}-{proc.own_start_time()}-{proc.machine_hash()}.log"


def reap_orphans(work_dir: Path) -> tuple[str, ...]:
    """End engines and evaluators below `work_dir` whose worker is gone; return the names of their logs."""
    if not proc.is_visible():
        return ()
    folder = work_dir.resolve()
    places = (folder / "engines", *sorted(folder.glob("plugins/engines/*")))
    engines = tuple(name for place in places if place.is_dir() for name in reap(place, SystemClock()))
    found = [(process.pid, name) for process in proc.every_process() if (name := _evaluator_of(process, folder))]
    for pid, name in found:
        log.warning("killing leftover evaluator process %d of a dead worker, log: %s", pid, name)
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return (*engines, *dict.fromkeys(name for _, name in found))


def _evaluator_of(process: proc.ProcessStat, work_dir: Path) -> str:
    """Return the name of the log to which an orphaned evaluator writes; "" for all other processes."""
    path = proc.error_file(process.pid)
    if path is None or path.parent != work_dir / "logs" or not process.alive:
        return ""
    known = _EVALUATOR_LOG.fullmatch(path.name)
    if known is None or known.group(3) != proc.machine_hash():
        return ""
    if proc.is_running(int(known.group(1)), int(known.group(2))):
        return ""
    return path.name
