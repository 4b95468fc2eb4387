"""Names of workers in the queue, which let other processes check later whether a worker is still running.

    str(own_name(Path("/state/work/worker-4242.log")))
    # node7:4242 started=8812345 machine=9f2c5b1e00aa41d7 oom=0 log=/state/work/worker-4242.log

Process IDs are reused, so the start time is part of the name. Both are valid only within one boot of one machine and
one container.
"""

import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path

from eval_jobs.host import proc

_VMSTAT = Path("/proc/vmstat")
_NAME = re.compile(
    r"(?P<host>\S+):(?P<pid>[0-9]{1,9}) started=(?P<started>[0-9]{1,18}) machine=(?P<machine>[0-9a-f]+) "
    r"oom=(?P<oom>[0-9]{1,18}) log=(?P<log>.+)"
)


@dataclass(frozen=True, kw_only=True)
class WorkerName:
    """One worker process; `str()` of it is its name in the queue."""

    host: str
    pid: int
    started: int
    """Clock ticks from boot to the start of the process."""
    machine: str
    """Hash of this boot and container."""
    oom_kills: int
    """Number of out-of-memory kills since boot when the worker started; 0 if the kernel does not count them."""
    log: str

    def __str__(self) -> str:
        return (
            f"{self.host}:{self.pid} started={self.started} machine={self.machine} oom={self.oom_kills} log={self.log}"
        )


def own_name(log: Path) -> WorkerName:
    """Return the name of this process, which writes to `log`."""
    return WorkerName(
        host=socket.gethostname(),
        pid=os.getpid(),
        started=proc.own_start_time(),
        machine=proc.machine_hash(),
        oom_kills=oom_kills(),
        log=str(log.absolute()),
    )


def parse_name(text: str) -> WorkerName | None:
    """Parse a name from the queue; None if it has another format."""
    match = _NAME.fullmatch(text)
    if match is None:
        return None
    return WorkerName(
        host=match["host"],
        pid=int(match["pid"]),
        started=int(match["started"]),
        machine=match["machine"],
        oom_kills=int(match["oom"]),
        log=match["log"],
    )


def oom_kills() -> int:
    """Return the number of out-of-memory kills since boot; 0 if the kernel does not count them."""
    try:
        lines = _VMSTAT.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
