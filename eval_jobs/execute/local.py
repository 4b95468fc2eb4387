"""Workers on this machine, as processes of their own."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from eval_jobs.errors import TrackerError

log = logging.getLogger(__name__)

STOP_TIMEOUT_S = 40.0
"""A worker that is stopped ends its engine and its evaluator first."""
QUICK_DEATH_S = 30.0
MAX_QUICK_DEATHS = 5


@dataclass(kw_only=True)
class _Worker:
    process: subprocess.Popen[bytes]
    started_s: float


class LocalWorkers:
    """`count` workers on the queue behind `queue_url`; dead ones are started again."""

    def __init__(self, count: int, queue_url: str, work_dir: Path) -> None:
        self._count = count
        self._queue_url = queue_url
        self._work_dir = work_dir.absolute()
        self._workers: list[_Worker] = []
        self._quick_deaths = 0

    def start(self) -> None:
        """Start the workers."""
        while len(self._workers) < self._count:
            self._workers.append(self._started())

    def check(self) -> None:
        """Start dead workers again.

        Raises:
            TrackerError: they died five times within seconds of their start.
        """
        for worker in [w for w in self._workers if w.process.poll() is not None]:
            self._workers.remove(worker)
            quick = time.monotonic() - worker.started_s < QUICK_DEATH_S
            self._quick_deaths = self._quick_deaths + 1 if quick else 0
            where = self._log(worker)
            log.warning("a worker ended with code %s and is started again; its log: %s", worker.process.poll(), where)
            if self._quick_deaths >= MAX_QUICK_DEATHS:
                raise TrackerError(
                    f"workers ended {MAX_QUICK_DEATHS} times within {QUICK_DEATH_S:.0f} s of their start",
                    hint=f"the last one's log: {where}",
                )
        self.start()

    def stop(self) -> None:
        """Stop all workers; each gives its plan back and ends its engine. Calling it twice is harmless."""
        for worker in self._workers:
            worker.process.terminate()
        deadline_s = time.monotonic() + STOP_TIMEOUT_S
        for worker in self._workers:
            try:
                worker.process.wait(max(0.0, deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                log.warning("worker %d did not stop in time and is killed", worker.process.pid)
                os.killpg(worker.process.pid, signal.SIGKILL)
                worker.process.wait()
        self._workers.clear()

    # --- private

    def _started(self) -> _Worker:
        command = [
            sys.executable, "-m", "eval_jobs.execute.worker",
            "--queue", self._queue_url, "--work-dir", str(self._work_dir), "--exit-with-parent",
        ]  # fmt: skip
        with (self._work_dir / "worker-start.log").open("ab") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        return _Worker(process=process, started_s=time.monotonic())

    def _log(self, worker: _Worker) -> Path:
        own = self._work_dir / f"worker-{worker.process.pid}.log"
        return own if own.exists() else self._work_dir / "worker-start.log"
