"""Which processes belong to a training, and the rank of each. Pure.

    job = job_of(processes, Places(run="sft", folder="/data/sft", own=frozenset({tracker_pid})))
    job.ranks[0].id, job.loaders

A process belongs to the run if its arguments, or a settings file in them, name the output folder or the folder above;
if its output goes to a file there; if it carries the name of the run; and if it is of the same job as one that does.
"""

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tracker.domain.health.processes.seen import JOB_NAMES, RUN_NAME, ProcessId, SeenProcess

_TOOLS = frozenset(
    "sh bash dash zsh fish ksh tmux screen sshd sudo su less more tail head grep rg cat cp mv rsync find ls "  # noqa: SIM905 - readable
    "du vi vim nvim nano emacs code htop top watch git make pip uv tensorboard jupyter-lab jupyter-noteboo".split()
)
"""Programs that name a folder and train nothing."""
_LAUNCHERS = re.compile(
    r"(?:^|/)(?:torchrun|accelerate|deepspeed|srun|mpirun|mpiexec|composer|swift|llamafactory-cli|tune)$"
    r"|^(?:torch\.distributed\.(?:run|launch)|accelerate\.commands\.launch|deepspeed\.launcher\.(?:runner|launch))$"
    r"|/(?:deepspeed/launcher/(?:runner|launch)|accelerate/commands/launch|torch/distributed/run)\.py$"
)
_OURS = re.compile(r"(?:^|/)tracker$|^(?:tracker|eval_jobs|dashboards)\.|^vllm\.|(?:^|/)vllm$")
_LOADER = re.compile(r"^pt_data_")
"""Names that PyTorch gives to the workers of its data loaders, and to their helper."""
_TOO_WIDE = frozenset(("", "/", "/tmp", "/data", "/mnt", "/home", "/root", "/workspace", "/scratch"))  # noqa: S108
"""Folders above the output folder that say nothing about a training."""


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

    @property
    def members(self) -> frozenset[ProcessId]:
        """All its processes."""
        ranks = (one.id for one in self.ranks.values())
        return frozenset((*ranks, *self.loaders, *(one.id for one in self.launchers)))


def job_of(processes: Sequence[SeenProcess], places: Places) -> Job:
    """Return the job of a run; without ranks if no process trains here."""
    by_pid = {one.id.pid: one for one in processes}
    return _sorted_out(_members(processes, by_pid, places), by_pid)


def _members(processes: Sequence[SeenProcess], by_pid: dict[int, SeenProcess], places: Places) -> list[SeenProcess]:
    trainers = [one for one in processes if not _is_other(one, by_pid, places)]
    named = {one.id.pid for one in trainers if _is_named(one, places)}
    keys = {_rendezvous(by_pid[pid]) for pid in named} - {""}
    members = []
    for one in trainers:
        is_peer = one.rank is not None and _rendezvous(one) in keys
        if is_peer or named & {one.id.pid, *_chain(one, by_pid)}:
            members.append(one)
    return members


def _sorted_out(members: Sequence[SeenProcess], by_pid: dict[int, SeenProcess]) -> Job:
    has_ranks = any(one.rank is not None for one in members)
    ranks: dict[int, SeenProcess] = {}
    workers: list[SeenProcess] = []
    launchers: list[SeenProcess] = []
    for one in sorted(members, key=lambda member: member.id.created_s):
        if _is_forked(one, by_pid):
            workers.append(one)
        elif is_launcher(one) or (has_ranks and one.rank is None):
            launchers.append(one)
        elif has_ranks or not ranks:
            ranks.setdefault(one.rank or 0, one)
        else:
            workers.append(one)  # without a launcher, the first process is the training
    world_size = max([len(ranks), *(one.world_size or 0 for one in ranks.values())])
    loaders = _ranks_of_workers(workers, ranks, by_pid)
    return Job(ranks=ranks, loaders=loaders, launchers=tuple(launchers), world_size=world_size)


def _ranks_of_workers(
    workers: Sequence[SeenProcess], ranks: Mapping[int, SeenProcess], by_pid: dict[int, SeenProcess]
) -> dict[ProcessId, int]:
    rank_of = {one.id.pid: rank for rank, one in ranks.items()}
    found = {}
    for one in workers:
        pid = _first(_chain(one, by_pid), rank_of)
        if pid is not None:
            found[one.id] = rank_of[pid]
    return found


def is_launcher(process: SeenProcess) -> bool:
    """Return whether a process only starts others."""
    return any(_LAUNCHERS.search(argument) for argument in process.arguments[:4])


def _is_forked(process: SeenProcess, by_pid: dict[int, SeenProcess]) -> bool:
    """Return whether a process was forked by a rank: it has the rank, and the command, of its parent."""
    if _LOADER.match(process.name):
        return True
    parent = by_pid.get(process.parent)
    if parent is None or process.rank is None:
        return False
    return process.rank == parent.rank and process.arguments == parent.arguments


def _is_other(process: SeenProcess, by_pid: dict[int, SeenProcess], places: Places) -> bool:
    if process.name in _TOOLS or process.id.pid in places.own:
        return True
    if any(_OURS.search(argument) for argument in process.arguments[:3]):
        return True
    return bool(places.own & _ancestors(process, by_pid))


def _is_named(process: SeenProcess, places: Places) -> bool:
    if places.pattern is not None:
        return places.pattern.search(" ".join(process.arguments)) is not None
    if process.variables.get(RUN_NAME) == places.run:
        return True
    if not places.folder:
        return False
    if any(path == places.folder or path.startswith(places.folder + "/") for path in process.outputs):
        return True
    wanted = {places.folder, posixpath.dirname(places.folder)} - _TOO_WIDE
    return any(path in wanted for path in _paths(process))


def _paths(process: SeenProcess) -> Iterable[str]:
    """Yield the paths in the arguments and in the settings that they name, as absolute ones."""
    for argument in process.arguments[1:]:
        yield absolute(argument.partition("=")[2] or argument, process.folder)
    for path in process.settings:
        yield absolute(path, process.folder)


def absolute(path: str, folder: str) -> str:
    """Return a path that a process in `folder` means; no link is followed."""
    return posixpath.normpath(posixpath.join(folder, path))


def _rendezvous(process: SeenProcess) -> str:
    """Return what the ranks of one job have in common; empty: nothing."""
    found = process.variables
    port = found.get("MASTER_PORT", "")
    if not port and not any(name in found for name in JOB_NAMES):
        return ""
    return " ".join((found.get("MASTER_ADDR", ""), port, *(found.get(name, "") for name in JOB_NAMES)))


def _chain(process: SeenProcess, by_pid: dict[int, SeenProcess]) -> list[int]:
    """Return the numbers of its ancestors, the nearest first."""
    found: list[int] = []
    above = by_pid.get(process.parent)
    while above is not None and above.id.pid not in found:
        found.append(above.id.pid)
        above = by_pid.get(above.parent)
    return found


def _ancestors(process: SeenProcess, by_pid: dict[int, SeenProcess]) -> set[int]:
    return set(_chain(process, by_pid))


def _first(pids: Iterable[int], wanted: dict[int, int]) -> int | None:
    for pid in pids:
        if pid in wanted:
            return pid
    return None
