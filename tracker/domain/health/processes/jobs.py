"""Which processes belong to a training, and the rank of each. Pure.

    job = job_of(processes, Places(run="sft", folder="/data/sft", own=frozenset({tracker_pid})))
    job.ranks[0].id, job.loaders

A process belongs to the run if its arguments, or a settings file in them, name the output folder or the one above; if
its script names the folder; if its output goes to a file there, or it holds one open for writing; if it carries the
name of the run; and if it is of the same job as one that does.
"""

import posixpath
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tracker.domain.health.processes.programs import is_launcher, is_python, is_tool, may_train, serves
from tracker.domain.health.processes.seen import JOB_NAMES, RUN_NAME, SLURM_LABEL, ProcessId, SeenProcess

_LOADER = re.compile(r"^pt_data_")
"""Names that PyTorch gives to the workers of its data loaders, and to their helper."""
_PLACE = re.compile(r"dir|path|save|output|checkpoint|ckpt|folder|config", re.IGNORECASE)
"""In arguments that say where a training saves."""
_TOO_WIDE = frozenset(("", "/", "/tmp", "/data", "/mnt", "/home", "/root", "/workspace", "/scratch"))  # noqa: S108
"""Folders that say nothing about a training."""
_NO_PATHS = frozenset(("", ".", ".."))
_HOMES = frozenset(("/home", "/Users"))
STARTS_S = 60.0
"""By which a script has started the training that it is for."""
LABELS = ("--task", "--tag", "--run_name", "--run-name")
"""Arguments by which users name a training."""
MAX_LABEL = 100


@dataclass(frozen=True, kw_only=True)
class Places:
    """What identifies the processes of a run."""

    run: str
    folder: str
    """Absolute path of the output folder; empty: checkpoints come from elsewhere."""
    pattern: re.Pattern[str] | None = None
    """Of the whole command, from the settings: nothing else identifies a process then."""
    machine: str = ""
    """Its name."""
    host: str = ""
    """Boot and container within which process IDs are valid."""
    own: frozenset[int] = frozenset()
    """Numbers of the tracker's own processes."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """The processes of one training on this machine."""

    ranks: Mapping[int, SeenProcess] = field(default_factory=dict)
    loaders: Mapping[ProcessId, int] = field(default_factory=dict)
    """The rank that each worker of a data loader works for."""
    launchers: tuple[SeenProcess, ...] = ()
    world_size: int = 0
    """Number of ranks on all machines."""
    outputs: frozenset[str] = frozenset()
    """Files to which no other Python program prints."""

    @property
    def members(self) -> frozenset[ProcessId]:
        """All its processes."""
        ranks = (one.id for one in self.ranks.values())
        return frozenset((*ranks, *self.loaders, *(one.id for one in self.launchers)))


def job_of(processes: Sequence[SeenProcess], places: Places) -> Job:
    """Return the job of a run; without ranks if no process trains here."""
    by_pid = {one.id.pid: one for one in processes}
    members = _members(processes, places)
    return replace(_sorted_out(members, by_pid), outputs=_outputs(members, processes))


def _outputs(members: Sequence[SeenProcess], processes: Sequence[SeenProcess]) -> frozenset[str]:
    """Return the files to which only a job prints: another training may share one."""
    found: set[str] = set()
    for one in members:
        found.update(one.outputs)
    ids = {one.id for one in members}
    for other in processes:
        if other.id not in ids and is_python(other):
            found.difference_update(other.outputs)
    return frozenset(found)


def _members(processes: Sequence[SeenProcess], places: Places) -> list[SeenProcess]:
    """Return the processes of the run; of several with the same rank, the one that certainly has it is the first."""
    own = _with_descendants(places.own, processes)
    trainers = [one for one in processes if one.id.pid not in own and not _is_other(one, places)]
    named = [one for one in trainers if _is_named(one, places)]
    keys = set(map(_rendezvous, named)) - {None}
    below = _with_descendants((one.id.pid for one in named), processes)
    members = [one for one in trainers if one.id.pid in below or _is_peer(one, keys)]
    return sorted(members, key=lambda one: (one.id.pid not in below, "RANK" not in one.variables, one.id.created_s))


def _is_peer(process: SeenProcess, keys: Collection[tuple[str, ...] | None]) -> bool:
    return process.rank is not None and _rendezvous(process) in keys


def _sorted_out(members: Sequence[SeenProcess], by_pid: dict[int, SeenProcess]) -> Job:
    has_ranks = any(one.rank is not None for one in members)
    ranks: dict[int, SeenProcess] = {}
    workers: list[SeenProcess] = []
    launchers: list[SeenProcess] = []
    for one in members:
        if _is_forked(one, by_pid):
            workers.append(one)
        elif _starts_ranks(one, members, by_pid, has_ranks=has_ranks):
            launchers.append(one)
        elif has_ranks or not ranks:
            ranks.setdefault(one.rank or 0, one)
        else:
            workers.append(one)  # without a launcher, the first process is the training
    world_size = max([len(ranks), *(one.world_size or 0 for one in ranks.values())])
    loaders = _ranks_of_workers(workers, ranks, by_pid)
    return Job(ranks=ranks, loaders=loaders, launchers=tuple(launchers), world_size=world_size)


def _starts_ranks(
    process: SeenProcess, members: Sequence[SeenProcess], by_pid: dict[int, SeenProcess], *, has_ranks: bool
) -> bool:
    """Return whether a process belongs to a job and does not train."""
    if _only_launches(process, members):
        return True
    return process.rank is None and (has_ranks or _wraps(process, members, by_pid))


def _only_launches(process: SeenProcess, members: Sequence[SeenProcess]) -> bool:
    """Return whether a process starts others and does not train; those that it forks have its command."""
    if not is_launcher(process) or not may_train(process):
        return is_launcher(process)
    return any(one.parent == process.id.pid and one.arguments != process.arguments for one in members)


def _wraps(process: SeenProcess, members: Sequence[SeenProcess], by_pid: dict[int, SeenProcess]) -> bool:
    """Return whether a process only runs the training, as `timeout`, `nsys`, a container or another script does."""
    for other in members:
        age_s = other.id.created_s - process.id.created_s
        if other.id == process.id or not is_python(other):
            continue
        if not 0 <= age_s < STARTS_S:
            continue  # a training may start an evaluation later
        if not is_python(process) or _is_started_by(other, process, by_pid):
            return True
    return False


def _is_started_by(other: SeenProcess, script: SeenProcess, by_pid: dict[int, SeenProcess]) -> bool:
    """Return whether a script has started a program that names the same paths."""
    if other.arguments == script.arguments or _nearest(other, {script.id.pid: 0}, by_pid) is None:
        return False
    return not set(_paths(script)).isdisjoint(_paths(other))


def _ranks_of_workers(
    workers: Sequence[SeenProcess], ranks: Mapping[int, SeenProcess], by_pid: dict[int, SeenProcess]
) -> dict[ProcessId, int]:
    rank_of = {one.id.pid: rank for rank, one in ranks.items()}
    found = {}
    for one in workers:
        pid = _nearest(one, rank_of, by_pid)
        if pid is not None:
            found[one.id] = rank_of[pid]
    return found


def _is_forked(process: SeenProcess, by_pid: dict[int, SeenProcess]) -> bool:
    """Return whether a process was forked by a rank: it has the rank, and the command, of its parent."""
    if _LOADER.match(process.name):
        return True
    parent = by_pid.get(process.parent)
    if parent is None or process.rank is None:
        return False
    return process.rank == parent.rank and process.arguments == parent.arguments


def _is_other(process: SeenProcess, places: Places) -> bool:
    if is_tool(process):
        return True
    return places.pattern is None and process.rank is None and serves(process)


def _is_named(process: SeenProcess, places: Places) -> bool:
    if places.pattern is not None:
        return places.pattern.search(" ".join(process.arguments)) is not None
    if process.variables.get(RUN_NAME) == places.run:
        return True
    return bool(places.folder) and _names_folder(process, places.folder)


def _names_folder(process: SeenProcess, folder: str) -> bool:
    if any(path == folder or path.startswith(folder + "/") for path in (*process.outputs, *process.writes)):
        return True
    wanted = {folder} - _TOO_WIDE
    above = posixpath.dirname(folder)
    if _is_of_trainings(above) and (process.rank is not None or is_launcher(process) or is_python(process)):
        wanted.add(above)
    return any(path in wanted for path in _paths(process)) or _saves_by_script(process, folder)


def _saves_by_script(process: SeenProcess, folder: str) -> bool:
    """Return whether a script names the output folder, and nothing that may replace it is in the arguments."""
    if process.settings or any(_PLACE.search(argument) for argument in process.arguments[2:]):
        return False
    return any(absolute(path, process.folder) == folder for path in process.script)


def _is_of_trainings(folder: str) -> bool:
    """Return whether a folder may be one of trainings only: a home folder, or one at the root, holds anything."""
    return folder.count("/") >= 2 and posixpath.dirname(folder) not in _HOMES


def _paths(process: SeenProcess) -> Iterable[str]:
    """Yield the paths in the arguments and in the settings that they name, as absolute ones."""
    for argument in process.arguments[1:]:
        name, _, value = argument.partition("=")
        path = value or ("" if name.startswith("-") else name)
        if path not in _NO_PATHS:
            yield absolute(path, process.folder)
    for path in process.settings:
        yield absolute(path, process.folder)


def labels_of(process: SeenProcess) -> tuple[str, ...]:
    """Return the names that a user has given a training: arguments of `LABELS`, and the name of its Slurm job."""
    found = []
    following = (*process.arguments[1:], "")
    for argument, next_one in zip(process.arguments, following, strict=False):
        name, _, value = argument.partition("=")
        if name in LABELS:
            found.append(f"{name} {value or next_one}".strip()[:MAX_LABEL])
    if SLURM_LABEL in process.variables:
        found.append(f"Slurm job {process.variables[SLURM_LABEL]}"[:MAX_LABEL])
    return tuple(found)


def absolute(path: str, folder: str) -> str:
    """Return a path that a process in `folder` means; no link is followed."""
    return posixpath.normpath(posixpath.join(folder, path))


def _rendezvous(process: SeenProcess) -> tuple[str, ...] | None:
    """Return what the ranks of one job have in common; None: nothing identifies it."""
    found = process.variables
    if not found.get("MASTER_PORT") or (process.world_size or 0) < 2:
        return None
    jobs = (found.get(name, "") for name in JOB_NAMES)
    ids = ("" if job == "none" else job for job in jobs)  # what torchrun sets without --rdzv-id
    return (process.network, found.get("MASTER_ADDR", ""), found["MASTER_PORT"], *ids)


def _with_descendants(pids: Iterable[int], processes: Sequence[SeenProcess]) -> set[int]:
    """Return these numbers, and those of all processes below."""
    children: dict[int, list[int]] = {}
    for one in processes:
        children.setdefault(one.parent, []).append(one.id.pid)
    found: set[int] = set()
    left = list(pids)
    while left:
        pid = left.pop()
        if pid not in found:
            found.add(pid)
            left += children.get(pid, ())
    return found


def _nearest(process: SeenProcess, wanted: Mapping[int, int], by_pid: dict[int, SeenProcess]) -> int | None:
    """Return the number of its nearest ancestor among those wanted."""
    passed: set[int] = set()
    above = by_pid.get(process.parent)
    while above is not None and above.id.pid not in passed:
        if above.id.pid in wanted:
            return above.id.pid
        passed.add(above.id.pid)
        above = by_pid.get(above.parent)
    return None
