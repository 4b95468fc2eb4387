"""Runs the command of a training, passes signals on to it, and remembers how it ended.

The command writes to its log itself, so that it survives when this process is killed or its terminal blocks. On Linux,
processes that it leaves behind become children of this one: they are waited for after a success, else ended.
"""

import ctypes
import logging
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
from pydantic import TypeAdapter, ValidationError

from eval_jobs import limits
from eval_jobs.errors import ProgramNotExecutable, ProgramNotFound, TrackerError
from eval_jobs.host import proc
from eval_jobs.host.bounded.files import read_bytes
from eval_jobs.host.bounded.json_text import TooLarge
from eval_jobs.host.secrets import held_secrets, masked
from eval_jobs.host.storage import mapped_storage_errors, written
from eval_jobs.ports import Clock
from tracker.domain.health.guarded import GuardedRun
from tracker.domain.health.logs.masking import without_keys

log = logging.getLogger(__name__)

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PASSED_ON = (*STOPPING, signal.SIGUSR1, signal.SIGUSR2)
KILL_AGAIN_S = 1.0
MIRROR_S = 0.1
MIRROR_REST_S = 10.0
"""Longest wait for a terminal that does not take the rest of the output."""
MAX_HOST = 64
"""Of Linux, HOST_NAME_MAX."""
PR_SET_CHILD_SUBREAPER = 36
"""Of Linux's prctl(2)."""

_RECORD = TypeAdapter(GuardedRun)


@dataclass(frozen=True, kw_only=True)
class Guard:
    """How a command is run."""

    run: str
    folder: Path
    """Folder of the logs and records of this run's commands."""
    grace_s: float
    """Seconds between a request to stop and SIGKILL."""


def run_guarded(guard: Guard, command: tuple[str, ...], environment: Mapping[str, str], clock: Clock) -> GuardedRun:
    """Run a command to its end, with its output in a log and on the standard output; return how it ended.

    Raises:
        ProgramNotFound, ProgramNotExecutable: it cannot be started.
        DiskFull, StoreError: the log or the record cannot be written.
    """
    started_at = clock.now()
    # With the machine: process IDs of two pods are often the same.
    host = re.sub(r"[^\w.-]", "_", socket.gethostname())[:MAX_HOST]
    path = guard.folder / f"{started_at:%Y%m%d-%H%M%S}-{host}-{os.getpid()}.log"
    _adopt_orphans()
    with _signals() as news:
        process = _start(command, path, environment)
        secrets = held_secrets(environment)
        found = proc.stat(process.pid)
        record = GuardedRun(
            run=guard.run,
            command=tuple(masked(without_keys(readable(part)), secrets) for part in command),
            log=str(path),
            machine=proc.this_machine() if proc.is_visible() else "",
            pid=process.pid,
            start_time=found.start_time if found else 0,
            started_at=started_at,
        )
        _remember(record)
        with _mirrored(path):
            code = _Guarded(process, guard.grace_s, clock).run_to_end(news)
        record = replace(
            record,
            ended_at=clock.now(),
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
        )
        _remember(record)
    return record


def readable(argument: str) -> str:
    """Return an argument as text: one that is no UTF-8 cannot be stored or printed."""
    return os.fsencode(argument).decode(errors="replace")


def guarded_runs(folder: Path) -> tuple[GuardedRun, ...]:
    """Return what is remembered of the commands in a folder, in the order of their start."""
    found = []
    for path in folder.glob("*.json"):
        with suppress(OSError, TooLarge, ValidationError):
            found.append(_RECORD.validate_json(read_bytes(path, limits.DOCUMENT)))
    return tuple(sorted(found, key=lambda one: one.started_at))


@dataclass(kw_only=True)
class _Asked:
    to_stop: bool = False
    kill_at_s: float | None = None


@dataclass
class _Guarded:
    """A running command and what it left behind."""

    process: subprocess.Popen[bytes]
    grace_s: float
    clock: Clock
    asked: _Asked = field(default_factory=_Asked)

    def run_to_end(self, news: int) -> int:
        """Wait until the command and what it left have ended; return its exit code, negative for a signal."""
        while self._reap():
            select.select([news], [], [], self._wait_s())
            for number in _received(news):
                self._pass_on(number)
            self._kill_what_is_due()
        return self.process.returncode

    def _reap(self) -> bool:
        """Take the exit codes of what has ended; return whether a child is left."""
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                if pid == self.process.pid:
                    self.process.returncode = os.waitstatus_to_exitcode(status)
                    self._end_rest()
        return False

    def _end_rest(self) -> None:
        """End what the command left, unless it succeeded: then it may have put itself into the background."""
        if self.process.returncode != 0 or self.asked.to_stop:
            _send(signal.SIGTERM, _below())
            self._kill_later()
        elif rest := _below():
            log.info("the command has ended, waiting for %d processes that it left", len(rest))

    def _pass_on(self, number: int) -> None:
        if number not in PASSED_ON:
            return
        if number == signal.SIGTERM or (number in STOPPING and self.asked.to_stop):
            self._kill_later()
        elif number in STOPPING:
            log.warning("waiting for the command to end; a second Ctrl-C kills it after %g s", self.grace_s)
        self.asked.to_stop = self.asked.to_stop or number in STOPPING
        if self.process.returncode is None:
            with suppress(OSError):
                os.killpg(self.process.pid, number)
        else:
            _send(number, _below())

    def _kill_later(self) -> None:
        if self.asked.kill_at_s is None:
            self.asked.kill_at_s = self.clock.monotonic_s() + self.grace_s

    def _wait_s(self) -> float | None:
        if self.asked.kill_at_s is None:
            return None
        return max(0.0, self.asked.kill_at_s - self.clock.monotonic_s())

    def _kill_what_is_due(self) -> None:
        now_s = self.clock.monotonic_s()
        if self.asked.kill_at_s is not None and now_s >= self.asked.kill_at_s:
            self.asked.kill_at_s = now_s + KILL_AGAIN_S
            log.warning("sending SIGKILL: processes of the command did not end within %g s", self.grace_s)
            _send(signal.SIGKILL, _below())


def _start(command: tuple[str, ...], path: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    with mapped_storage_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        output = path.open("ab")
    with output:
        try:
            return subprocess.Popen(
                command, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        except (OSError, ValueError) as error:
            with suppress(OSError):
                path.unlink()
            raise _cannot_run(command[0], error) from error


def _cannot_run(program: str, error: OSError | ValueError) -> TrackerError:
    if isinstance(error, FileNotFoundError):
        return ProgramNotFound(f"{program}: no such program", hint="check its name and PATH")
    why = error.strerror if isinstance(error, OSError) else error
    return ProgramNotExecutable(f"cannot run {program}: {why}", hint="check that it is a program that may be executed")


def _remember(record: GuardedRun) -> None:
    """Write the record beside the log; a training that runs is not ended because the disk is full."""
    path = Path(record.log).with_suffix(".json")
    try:
        with written(path, hint="check the state folder and its disk") as file:
            file.write(_RECORD.dump_json(record, indent=1))
    except TrackerError as error:
        log.warning("%s; hint: %s", error.message, error.hint)


def _adopt_orphans() -> None:
    """Become the parent of processes whose own parent ends; only Linux can."""
    if sys.platform == "linux" and ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        log.warning("processes that the command leaves behind are not waited for: prctl failed")


@contextmanager
def _signals() -> Iterator[int]:
    """Yield a descriptor from which the number of each received signal is read as a byte; what is ignored stays so."""
    reading, writing = os.pipe()
    for end in (reading, writing):
        os.set_blocking(end, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _note)
    for number in PASSED_ON:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _note)
    try:
        yield reading
    finally:
        signal.set_wakeup_fd(before)
        os.close(reading)
        os.close(writing)


def _note(*_: object) -> None:
    """Do nothing: the number is read from the descriptor."""


def _received(news: int) -> bytes:
    try:
        return os.read(news, 4096)
    except BlockingIOError:
        return b""


def _below() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def _send(number: int, processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(number)


@contextmanager
def _mirrored(path: Path) -> Iterator[None]:
    """Copy the log to the standard output while it grows, until that is closed."""
    ended = threading.Event()
    thread = threading.Thread(target=_mirror, args=(path, ended), name="mirror", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(MIRROR_REST_S)


def _mirror(path: Path, ended: threading.Event) -> None:
    with suppress(OSError), path.open("rb") as file:
        while True:
            is_last = ended.is_set()
            while part := memoryview(file.read(65536)):
                while part:
                    part = part[os.write(1, part) :]
            if is_last:
                return
            ended.wait(MIRROR_S)
