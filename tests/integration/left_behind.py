"""What an engine has running and lying about: its live processes and its pid file."""

from __future__ import annotations

import json
from pathlib import Path

from eval_jobs.serve import proc
from eval_jobs.serve.process import EngineRecord


def writers(*logs: str | Path) -> list[int]:
    """Return the live processes that write to these logs."""
    return [
        process.pid
        for process in proc.every_process()
        if process.alive and any(proc.writes_to(process.pid, Path(log)) for log in logs)
    ]


def record_of(work_dir: Path) -> EngineRecord:
    (pid_file,) = work_dir.glob("engines/*.pid")
    return EngineRecord(**json.loads(pid_file.read_text()))
