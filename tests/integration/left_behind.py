"""What an engine has running and lying about: its live processes and its pid file."""

import json
import os
from pathlib import Path

from eval_jobs.host import proc
from eval_jobs.serve.process.lifecycle import EngineRecord


def writers(*logs: str | Path) -> list[int]:
    """Return the live processes that write to these logs."""
    return [
        process.pid
        for process in proc.every_process()
        if process.alive and any(proc.writes_to(process.pid, Path(log)) for log in logs)
    ]


def wait_for_end(record: EngineRecord) -> None:
    """Return when the leader of an engine that this process started has ended, and can be seen to have.

    It closes its log a moment before, and its last thread may end a moment after it is a zombie.
    """
    os.waitid(os.P_PID, record.pid, os.WEXITED | os.WNOWAIT)


def record_of(work_dir: Path) -> EngineRecord:
    (pid_file,) = work_dir.glob("engines/*.pid")
    return EngineRecord(**json.loads(pid_file.read_text()))
