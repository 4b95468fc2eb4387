"""An engine as an operating system process: start, watch, stop, and find it again after the owner was killed.

Each start leaves `<folder>/<name>.log` and, while it runs, `<folder>/<name>.pid`. The pid file names the owner, the
process that started the engine. If the owner exits without stopping the engine, the next `reap` stops it. An engine is
a whole process group: its leader may be dead while other members still run and hold all the memory.
"""

import json
import logging
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path

from eval_jobs.errors import ConfigError, ServeError
from eval_jobs.host import proc
from eval_jobs.host.cpu_placement import set_niceness
from eval_jobs.host.storage import is_full, storage_error
from eval_jobs.ports import Clock

log = logging.getLogger(__name__)

STOP_GRACE_S = 20.0
"""Time for the leader to exit after SIGTERM. vLLM needs up to 2.4 s on an idle machine."""
GROUP_GRACE_S = 3.0
"""Time for the rest of the group to exit after its leader, and to clean up shared memory."""
KILL_GRACE_S = 5.0
POLL_S = 0.1

NOTE = "tracker-note.json"
"""File in the engine's own temporary folder."""


@dataclass(frozen=True, kw_only=True)
class EngineRecord:
    """Content of a pid file."""

    machine: str
    owner_pid: int
    owner_start_time: int
    log: str
    tmp_dir: str
    pid: int = 0
    """Process id of the group leader, which is also the group id; 0 while the process is being started."""
    start_time: int = 0


@dataclass(frozen=True, kw_only=True)
class RunningEngine:
    """An engine on this machine, as other processes see it."""

    name: str
    record: EngineRecord
    is_owned: bool
    """False: the process that started it has exited, and the next worker or command stops it."""
    note: str
    """Last text written by `EngineProcess.note`, empty if there is none."""


class EngineProcess:
    """One running engine, created by `start`."""

    def __init__(self, popen: subprocess.Popen[bytes], record: EngineRecord, pid_file: Path, clock: Clock) -> None:
        self._popen = popen
        self._record = record
        self._pid_file = pid_file
        self._clock = clock
        self._cpu_s = 0.0

    @property
    def log(self) -> Path:
        """Path of the file with all output of the engine."""
        return Path(self._record.log)

    def exit_code(self) -> int | None:
        """Return the leader's exit code (negative: number of the signal that ended it), None while it runs."""
        return self._popen.poll()

    def note(self, text: str) -> None:
        """Write a note on the engine's current state for `running_engines`; it is removed with the engine."""
        note = Path(self._record.tmp_dir) / NOTE
        draft = note.with_suffix(".draft")
        with suppress(OSError):  # the note is for display only
            draft.write_text(text, encoding="utf-8")
            draft.replace(note)

    @property
    def pid(self) -> int:
        """Process id of the leader."""
        return self._record.pid

    def members(self) -> tuple[int, ...]:
        """Return the ids of its live processes."""
        return _members(self._record)

    def used_cpu_s(self) -> float:
        """Return the CPU time of the whole group in seconds; after its end, the value when `stop` was called."""
        ticks = sum(found.cpu_ticks for pid in self.members() if (found := proc.stat(pid)) is not None)
        self._cpu_s = max(self._cpu_s, ticks / os.sysconf("SC_CLK_TCK"))
        return self._cpu_s

    def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """Stop the whole group and remove its temporary files. Calling it twice is harmless.

        Args:
            grace_s: time for the leader to exit after SIGTERM.
        """
        self.used_cpu_s()
        if _end(self._record, self._pid_file, self._clock, grace_s):
            # Reap the zombie; it remains until the last of its threads has ended.
            with suppress(subprocess.TimeoutExpired):
                self._popen.wait(KILL_GRACE_S)


def start(
    argv: Sequence[str], env: Mapping[str, str], *, folder: Path, name: str, clock: Clock, niceness: int = 0
) -> EngineProcess:
    """Start `argv` in its own process group, with its own TMPDIR and its output in `<folder>/<name>.log`.

    With a `niceness` above 0, other processes take precedence over the group on the CPU.

    Raises:
        ConfigError: the program cannot be executed.
        DiskFull, ServeError: the log or the pid file cannot be written.
    """
    with mapped_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    record, pid_file = _new_record(folder / f"{name}.log"), folder / f"{name}.pid"
    with ExitStack() as undo:
        undo.callback(lambda: _end(record, pid_file, clock))
        # Written before the start: if the tracker is killed right after it, the engine is still found by its log.
        _write(pid_file, record)
        with mapped_os_errors(Path(record.tmp_dir).parent):
            Path(record.tmp_dir).mkdir(mode=0o700)
        popen = _popen(argv, {**env, "TMPDIR": record.tmp_dir}, Path(record.log))
        set_niceness(popen.pid, niceness)
        found = proc.stat(popen.pid)
        record = replace(record, pid=popen.pid, start_time=found.start_time if found else 0)
        _write(pid_file, record)
        undo.pop_all()
    return EngineProcess(popen, record, pid_file, clock)


def reap(folder: Path, clock: Clock) -> tuple[str, ...]:
    """Stop engines whose owner died without stopping them, and return their names; also delete leftover drafts."""
    for draft in folder.glob("*.pid-draft"):
        if _is_left(draft):
            with suppress(OSError):
                draft.unlink(missing_ok=True)
    return tuple(pid_file.stem for pid_file in sorted(folder.glob("*.pid")) if _reap_one(pid_file, clock))


def running_engines(folder: Path) -> tuple[RunningEngine, ...]:
    """Return the engines of this machine that have a live process, sorted by name."""
    found = []
    for pid_file in sorted(folder.glob("*.pid")):
        record = _read_record(pid_file)
        if record is None or record.machine != proc.this_machine() or not _members(record):
            continue
        is_owned = proc.is_running(record.owner_pid, record.owner_start_time)
        found.append(RunningEngine(name=pid_file.stem, record=record, is_owned=is_owned, note=_note(record)))
    return tuple(found)


@contextmanager
def mapped_os_errors(where: Path) -> Iterator[None]:
    """Convert an OSError about files below `where` into DiskFull or ServeError."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise storage_error(where, error) from error
        raise ServeError(
            f"cannot write to {where}: {error.strerror or error}", hint="check the folder and its permissions"
        ) from error


_DRAFT = re.compile(r"\.([0-9a-f]+)-(\d+)-(\d+)\.pid-draft$")


def _new_record(log_file: Path) -> EngineRecord:
    # In the system's temporary folder, because the path of a Unix socket in it is limited to 107 characters.
    tmp_dir = Path(tempfile.gettempdir()) / f"tracker-engine-{secrets.token_hex(8)}"
    return EngineRecord(
        machine=proc.this_machine(),
        owner_pid=os.getpid(),
        owner_start_time=proc.own_start_time(),
        log=str(log_file.resolve()),
        tmp_dir=str(tmp_dir),
    )


def _popen(argv: Sequence[str], env: Mapping[str, str], log_file: Path) -> subprocess.Popen[bytes]:
    with mapped_os_errors(log_file.parent):
        log_file.touch()
    try:
        with log_file.open("wb") as output:
            return subprocess.Popen(
                list(argv),
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as error:
        raise ConfigError(
            f"cannot run {argv[0]}: {error.strerror or error}",
            hint="set serve.python to the Python interpreter of the engine's environment",
        ) from error


def _write(pid_file: Path, record: EngineRecord) -> None:
    """Write the file atomically: a killed writer must not leave half a record."""
    owner = f"{proc.machine_hash()}-{record.owner_pid}-{record.owner_start_time}"
    draft = pid_file.with_suffix(f".{owner}.pid-draft")
    with mapped_os_errors(pid_file.parent):
        draft.write_text(json.dumps(asdict(record)), encoding="utf-8")
        draft.replace(pid_file)


def _is_left(draft: Path) -> bool:
    """Return whether the process that wrote this possibly incomplete draft has exited; the file name identifies it."""
    found = _DRAFT.search(draft.name)
    return (
        found is not None
        and found.group(1) == proc.machine_hash()
        and not proc.is_running(int(found.group(2)), int(found.group(3)))
    )


def _read_record(pid_file: Path) -> EngineRecord | None:
    try:
        return EngineRecord(**json.loads(pid_file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _note(record: EngineRecord) -> str:
    try:
        return (Path(record.tmp_dir) / NOTE).read_text(encoding="utf-8")
    except OSError:
        return ""


def _reap_one(pid_file: Path, clock: Clock) -> bool:
    record = _read_record(pid_file)
    if record is None:
        log.warning("ignoring %s: not a PID file of the tracker", pid_file)
        return False
    if record.machine != proc.this_machine() or proc.is_running(record.owner_pid, record.owner_start_time):
        return False
    log.warning("stopping the leftover engine of a dead worker, log: %s", record.log)
    return _end(record, pid_file, clock)


def _end(record: EngineRecord, pid_file: Path, clock: Clock, grace_s: float = STOP_GRACE_S) -> bool:
    """Send SIGTERM to the leader, wait, send SIGKILL to the rest, and return whether the group is empty."""
    if _leader_runs(record):
        _signal(record.pid, signal.SIGTERM)
        _wait_until(lambda: not _leader_runs(record), grace_s, clock)
    if not _wait_until(lambda: not _members(record), GROUP_GRACE_S, clock):
        _kill_members(record, clock)
    rest = _members(record)
    if rest:
        log.error("cannot kill processes %s of an engine, log: %s", rest, record.log)
        return False
    shutil.rmtree(record.tmp_dir, ignore_errors=True)
    with suppress(OSError):
        pid_file.unlink(missing_ok=True)
    return True


def _kill_members(record: EngineRecord, clock: Clock) -> None:
    for pid in _members(record):
        if not proc.is_resource_tracker(pid):
            _signal(pid, signal.SIGKILL)
    if not _wait_until(lambda: not _members(record), GROUP_GRACE_S, clock):
        for pid in _members(record):
            _signal(pid, signal.SIGKILL)
        _wait_until(lambda: not _members(record), KILL_GRACE_S, clock)


def _leader_runs(record: EngineRecord) -> bool:
    return record.pid > 0 and proc.is_running(record.pid, record.start_time)


def _members(record: EngineRecord) -> tuple[int, ...]:
    """Return the engine's live processes: its group while the leader lives, and any process that writes to its log.

    After the leader has exited, its id may be reused by another process; only the engine writes to that log.
    """
    leader_runs = _leader_runs(record)
    log_file = Path(record.log)
    return tuple(
        process.pid
        for process in proc.every_process()
        if process.alive and ((leader_runs and process.group == record.pid) or proc.writes_to(process.pid, log_file))
    )


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _wait_until(condition: Callable[[], bool], seconds: float, clock: Clock) -> bool:
    deadline = clock.now() + timedelta(seconds=seconds)
    while not condition():
        if clock.now() >= deadline:
            return False
        clock.sleep(POLL_S)
    return True
