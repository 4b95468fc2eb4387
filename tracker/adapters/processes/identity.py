"""When a process was started, which tells two of the same number apart."""

import os

import psutil

from eval_jobs.host import proc

_TICKS = os.sysconf("SC_CLK_TCK")


def created_s(pid: int) -> float:
    """Return when a process was started, in seconds since the boot of the machine.

    psutil adds the time of the boot, which changes when the clock is set: all processes would be others then.

    Raises:
        NoSuchProcess: there is none.
    """
    found = proc.stat(pid)
    if found is None:
        raise psutil.NoSuchProcess(pid)
    return started_s(found)


def started_s(found: proc.ProcessStat) -> float:
    """Return the seconds between the boot of the machine and the start of the process."""
    return found.start_time / _TICKS
