"""Workers, and other processes of a watcher on this machine."""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from eval_jobs.errors import TrackerError
from eval_jobs.execute.nudge import nudge, pass_on
from eval_jobs.host.bounded.files import last_line_of
from eval_jobs.host.unforeseen import exit_words
from eval_jobs.queue.address import PASSWORD_VARIABLE, QUEUE_URL_VARIABLE

log = logging.getLogger(__name__)

STOP_TIMEOUT_S = 40.0
"""A worker that stops ends its engine and its evaluator first."""
KILL_TIMEOUT_S = 10.0
QUICK_DEATH_S = 30.0
MAX_QUICK_DEATHS = 5
REST_S = 60.0
"""Delay between two starts of a worker that dies repeatedly."""


@dataclass(frozen=True, kw_only=True)
class LocalProgram:
    """What the processes run. It writes its log to `<kind>-<pid>.log` in the work folder."""

    kind: str
    """Name in messages and of its log files."""
    module: str
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables besides those of the database."""
    is_needed: bool = True
    """Whether it is an error if it cannot run on this machine."""


WORKER = LocalProgram(kind="worker", module="eval_jobs.execute.worker.main")


@dataclass(frozen=True, kw_only=True)
class _Running:
    process: subprocess.Popen[bytes]
    started_s: float
    quick_deaths: int
    """Number of consecutive predecessors that died soon after their start."""


class LocalWorkers:
    """`count` workers, or other programs, on the database at `queue_url`; dead ones are restarted."""

    def __init__(
        self,
        count: int,
        queue_url: str,
        work_dir: Path,
        *,
        password: str = "",
        program: LocalProgram = WORKER,
        on_news: Callable[[], None] = lambda: None,
    ) -> None:
        """Configure the workers without starting them. `on_news` is called, from a thread, when a record is stored."""
        self._count = count
        self._on_news = on_news
        self._password = password
        self._queue_url = queue_url
        self._work_dir = work_dir.absolute()
        self._program = program
        self._start_log = self._work_dir / f"{program.kind}-start.log"
        """Output of workers before they have their own log."""
        self._workers: list[_Running] = []
        self._has_lived = False
        """Whether any worker ever ran for `QUICK_DEATH_S`: then workers can run on this machine."""
        self._resting: set[int] = set()
        """Process IDs of dead workers whose restart is delayed."""

    def check(self) -> None:
        """Start missing workers and restart dead ones; after `MAX_QUICK_DEATHS`, restarts are delayed by `REST_S`.

        Raises:
            TrackerError: a worker died repeatedly soon after its start, and no worker ever ran for longer.
        """
        for index, worker in enumerate(self._workers):
            code = worker.process.poll()
            lived_s = time.monotonic() - worker.started_s
            if code is None:
                self._has_lived |= lived_s >= QUICK_DEATH_S
            elif worker.process.pid in self._resting:
                if lived_s >= REST_S:
                    self._resting.discard(worker.process.pid)
                    self._workers[index] = self._started(quick_deaths=MAX_QUICK_DEATHS - 1)
            else:
                self._has_ended(index, code, is_quick=lived_s < QUICK_DEATH_S)
        while len(self._workers) < self._count:
            self._workers.append(self._started(quick_deaths=0))

    def nudge(self) -> None:
        """Make idle workers poll the queue now."""
        for worker in self._workers:
            if worker.process.stdin is not None and not worker.process.stdin.closed:
                nudge(worker.process.stdin.fileno())

    def stop(self) -> None:
        """Stop all workers; each releases its plan and ends its engine. Calling it twice is harmless."""
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.process.terminate()
        deadline_s = time.monotonic() + STOP_TIMEOUT_S
        for worker in workers:
            _end(worker.process, deadline_s)

    def _has_ended(self, index: int, code: int, *, is_quick: bool) -> None:
        """Restart a worker, now or after a delay: a machine short of memory for a night must not end a watch."""
        worker = self._workers[index]
        _hang_up(worker.process)
        pid, quick_deaths = worker.process.pid, worker.quick_deaths + 1 if is_quick else 0
        how, where = exit_words(code), self._log(pid)
        if quick_deaths < MAX_QUICK_DEATHS:
            log.warning("restarting %s %d (%s), log: %s", self._program.kind, pid, how, where)
            self._workers[index] = self._started(quick_deaths=quick_deaths)
            return
        times = f"exited {quick_deaths} times within {QUICK_DEATH_S:.0f} s of its start (last: {how})"
        often = f"the {self._program.kind} {times}"
        if self._program.is_needed and not self._has_lived:
            raise TrackerError(f"{often}: {last_line_of(where)}", hint=f"read {where}")
        log.error("%s; starting the next one in %.0f s, log: %s", often, REST_S, where)
        self._resting.add(pid)

    def _started(self, *, quick_deaths: int) -> _Running:
        self._work_dir.mkdir(parents=True, exist_ok=True)
        # -P: do not import from the current folder.
        command = [sys.executable, "-P", "-m", self._program.module, "--work-dir", str(self._work_dir)]
        database = {QUEUE_URL_VARIABLE: self._queue_url, PASSWORD_VARIABLE: self._password}
        with self._start_log.open("ab") as output:
            process = subprocess.Popen(
                [*command, "--nudged", "--exit-with-parent", str(os.getpid())],
                env=os.environ | self._program.variables | database,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for this process, which stops the workers
            )
        log.info("%s %d started", self._program.kind, process.pid)
        self._listen(process)
        return _Running(process=process, started_s=time.monotonic(), quick_deaths=quick_deaths)

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        if process.stdin is None or process.stdout is None:
            raise TypeError("a worker needs pipes for stdin and stdout")
        os.set_blocking(process.stdin.fileno(), False)
        output = process.stdout

        def listen() -> None:
            with output:
                pass_on(output.fileno(), self._on_news)

        threading.Thread(target=listen, name=f"news of {self._program.kind} {process.pid}", daemon=True).start()

    def _log(self, pid: int) -> Path:
        own = self._work_dir / f"{self._program.kind}-{pid}.log"
        if own.exists():
            return own
        return self._start_log


def _end(process: subprocess.Popen[bytes], deadline_s: float) -> None:
    try:
        process.wait(max(0.0, deadline_s - time.monotonic()))
    except subprocess.TimeoutExpired:
        log.warning("killing process %d: it did not stop within %.0f s", process.pid, STOP_TIMEOUT_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):  # one that waits for a file server cannot be killed
            process.wait(KILL_TIMEOUT_S)
    _hang_up(process)


def _hang_up(process: subprocess.Popen[bytes]) -> None:
    """Close the pipe to its stdin; the listening thread closes the pipe from its stdout."""
    if process.stdin is not None:
        process.stdin.close()
