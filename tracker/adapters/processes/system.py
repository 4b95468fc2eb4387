"""`tracker.ports.Processes`: the processes of this machine, read with psutil and from /proc."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from eval_jobs.host import proc
from tracker.adapters.host.cgroups import memory_folder, memory_kills
from tracker.adapters.processes.ends import ExitWatch
from tracker.adapters.processes.identity import created_s, started_s
from tracker.adapters.processes.settings_files import SettingsFiles
from tracker.adapters.processes.stacks import Stacks
from tracker.domain.health.processes.seen import NAMES, ProcessId, ProcessState, Sample, SeenProcess, StackFrame

ROOT = Path("/")
MAX_ARGUMENTS = 2_000
NO_TIME = "there was no time to read it"
_STANDARD = frozenset(("0", "1", "2"))
_NO_FILES = ("/dev/", "/proc/", "/sys/", "/memfd:")
_STATES = {
    psutil.STATUS_RUNNING: ProcessState.RUNNING,
    psutil.STATUS_SLEEPING: ProcessState.SLEEPING,
    psutil.STATUS_DISK_SLEEP: ProcessState.BLOCKED,
    psutil.STATUS_STOPPED: ProcessState.STOPPED,
    psutil.STATUS_TRACING_STOP: ProcessState.STOPPED,
    psutil.STATUS_ZOMBIE: ProcessState.ZOMBIE,
    psutil.STATUS_DEAD: ProcessState.GONE,
}


@dataclass(frozen=True, kw_only=True)
class _Known:
    """A process, and the program that it ran when it was read."""

    process: SeenProcess
    program: str
    """Path; empty: not readable, or the process has none, as those of the kernel and zombies."""
    is_whole: bool = True
    """Whether the files in its arguments could be read."""

    def with_writes(self) -> SeenProcess:
        """Return the process with the files that it holds open now."""
        if not self.program.rpartition("/")[2].startswith("python"):
            return self.process
        return replace(self.process, writes=_writes(self.process.id.pid))

    def is_other(self, created: float, program: str) -> bool:
        """Return whether it has to be read again.

        Its number is used by another one, or it became another program, as a script does with `exec`.
        """
        if self.process.id.created_s != created or not self.is_whole:
            return True
        return bool(program) and (program != self.program or not self.process.arguments)


@dataclass(kw_only=True)
class SystemProcesses:
    """What /proc says; what does not change of a program that runs is read once."""

    stacks: Stacks = field(default_factory=Stacks)
    ends: ExitWatch = field(default_factory=ExitWatch)
    settings: SettingsFiles = field(default_factory=SettingsFiles)
    _seen: dict[int, _Known] = field(default_factory=dict)
    _cgroups: dict[ProcessId, Path | None] = field(default_factory=dict)
    """Folder of the memory cgroup of each process that was asked for last."""

    def all(self) -> tuple[SeenProcess, ...]:
        """Return all processes; see `ports.Processes`."""
        found: dict[int, _Known] = {}
        for pid in proc.pids():
            with suppress(psutil.Error, OSError):
                created, program = created_s(pid), proc.link_of(pid, "exe")
                if not program and _is_dead(pid):
                    continue  # of an earlier start, whose parent does not know
                known = self._seen.get(pid)
                if known is None or known.is_other(created, program):
                    known = self._known(pid, created, program)
                found[pid] = known
        self._seen = found
        return tuple(known.with_writes() for known in found.values())

    def _known(self, pid: int, created: float, program: str) -> _Known:
        process = _seen(psutil.Process(pid), created)
        settings = self.settings.paths(process.arguments, process.folder)
        script = self.settings.script_paths(process.arguments, process.folder)
        whole = replace(process, settings=settings or (), script=script or ())
        return _Known(process=whole, program=program, is_whole=settings is not None and script is not None)

    def ended(self, ids: Iterable[ProcessId]) -> frozenset[ProcessId]:
        """Return which processes have ended; see `ports.Processes`."""
        return frozenset(one for one in ids if not self.ends.is_waiting(one) and not _is_alive(one))

    def samples(self, ids: Iterable[ProcessId]) -> Mapping[ProcessId, Sample]:
        """Return what processes do now; see `ports.Processes`."""
        wanted = tuple(ids)
        stacks = self.stacks.of([one.pid for one in wanted])
        return {one: _with_stack(_sample(one), stacks.get(one.pid, NO_TIME)) for one in wanted}

    def exits(self, ids: Iterable[ProcessId]) -> Mapping[ProcessId, float]:
        """Return when processes have ended; see `ports.Processes`."""
        return self.ends.of(ids)

    def memory_kills(self, ids: Iterable[ProcessId]) -> int:
        """Return how many processes the kernel killed for memory; see `ports.Processes`."""
        known = self._cgroups
        self._cgroups = {one: known[one] if one in known else _cgroup(one) for one in ids}
        return sum(memory_kills(folder) for folder in set(self._cgroups.values()) if folder is not None)


def _cgroup(one: ProcessId) -> Path | None:
    with suppress(OSError):
        return memory_folder(ROOT, one.pid)
    return None


def _is_dead(pid: int) -> bool:
    found = proc.stat(pid)
    return found is None or not found.alive


def _is_alive(one: ProcessId) -> bool:
    found = proc.stat(one.pid)
    if found is None:
        return proc.exists(one.pid)
    return found.alive and started_s(found) == one.created_s


def _seen(process: psutil.Process, created: float) -> SeenProcess:
    with process.oneshot():
        name, parent = process.name(), process.ppid()
    arguments: Sequence[str] = ()
    folder = ""
    with suppress(psutil.Error, OSError):
        arguments = process.cmdline()[:MAX_ARGUMENTS]
        folder = process.cwd()
    return SeenProcess(
        id=ProcessId(pid=process.pid, created_s=created),
        parent=parent,
        name=name,
        arguments=tuple(arguments),
        folder=folder,
        variables=_variables(process.pid),
        outputs=_outputs(process.pid),
        network=proc.link_of(process.pid, "ns/net"),
    )


def _variables(pid: int) -> dict[str, str]:
    """Return the listed variables of a process; the others are not kept."""
    found = {}
    for entry in proc.process_file(pid, "environ").split("\0"):
        name, _, value = entry.partition("=")
        if name in NAMES:
            found[name] = value
    return found


def _outputs(pid: int) -> tuple[str, ...]:
    """Return the files that stdout and stderr are; only the names are read: a file server may hang."""
    found = []
    for descriptor in ("1", "2"):
        path = proc.link_of(pid, f"fd/{descriptor}")
        if path.startswith("/") and not path.startswith("/dev/"):
            found.append(path)
    return tuple(dict.fromkeys(found))


def _writes(pid: int) -> tuple[str, ...]:
    """Return the files that a process holds open for writing, but for its output; no file is touched."""
    found: set[str] = set()
    for name in proc.names_in(pid, "fd"):
        if name in _STANDARD:
            continue
        path = proc.link_of(pid, f"fd/{name}")
        if path.startswith("/") and not path.startswith(_NO_FILES) and _is_written(pid, name):
            found.add(path)
    return tuple(sorted(found))


def _is_written(pid: int, descriptor: str) -> bool:
    flags = re.search(r"^flags:\s*([0-7]+)$", proc.process_file(pid, f"fdinfo/{descriptor}"), re.MULTILINE)
    return flags is not None and bool(int(flags[1], 8) & (os.O_WRONLY | os.O_RDWR))


def _with_stack(sample: Sample, stack: tuple[StackFrame, ...] | str) -> Sample:
    return replace(sample, no_stack=stack) if isinstance(stack, str) else replace(sample, stack=stack)


def _sample(one: ProcessId) -> Sample:
    try:
        process = psutil.Process(one.pid)
        if created_s(one.pid) != one.created_s:
            return Sample(state=ProcessState.GONE)
        with process.oneshot():
            state = _STATES.get(process.status(), ProcessState.SLEEPING)
            times = process.cpu_times()
    except (psutil.Error, OSError):
        return Sample(state=ProcessState.UNKNOWN if proc.exists(one.pid) else ProcessState.GONE)
    return Sample(
        state=state, cpu_s=times.user + times.system, moved_bytes=_moved_bytes(process), waits_in=_waits_in(one.pid)
    )


def _moved_bytes(process: psutil.Process) -> int | None:
    with suppress(psutil.Error, OSError, AttributeError):
        counters = process.io_counters()
        mapped = counters.read_bytes + counters.write_bytes  # of files that are mapped, no call reads
        return int(counters.read_chars + counters.write_chars + mapped)
    return None


def _waits_in(pid: int) -> str:
    name = proc.process_file(pid, "wchan").strip()
    return "" if name == "0" else name
