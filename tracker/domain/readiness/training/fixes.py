"""How a limit is raised, which depends on what started the process. Pure.

limits.conf is read by PAM at a login (pam_limits(8)): it has no effect on services, containers and Slurm jobs. Units of
systemd have LimitMEMLOCK= (systemd.exec(5)), Docker --ulimit, and slurmd passes on the limits of the shell that
submitted the job, unless PropagateResourceLimitsExcept names them (slurm.conf(5)).
"""

from collections.abc import Mapping
from typing import NamedTuple

from tracker.domain.readiness.training.facts import Host, LaunchPlace, Memory, Resource
from tracker.domain.records.display import bytes_text


class _Names(NamedTuple):
    """How the programs that set a limit call it."""

    flag: str
    item: str


_NAMES: Mapping[Resource, _Names] = {
    Resource.LOCKED: _Names("-l", "memlock"),
    Resource.FILES: _Names("-n", "nofile"),
    Resource.PROCESSES: _Names("-u", "nproc"),
}
_RAISE: Mapping[LaunchPlace, str] = {
    LaunchPlace.SHELL: "add the line `* - {item} {value}` to /etc/security/limits.conf, and log in again",
    LaunchPlace.SYSTEMD: "run `systemctl edit UNIT`, set Limit{upper}={systemd} under [Service], and restart it",
    LaunchPlace.CONTAINER: "start the container with `docker run --ulimit {item}={docker}`",
    LaunchPlace.KUBERNETES: "set Limit{upper}={systemd} in the unit of containerd on the node: a pod cannot set it",
    LaunchPlace.SLURM: (
        "set PropagateResourceLimitsExcept={upper} in slurm.conf, Limit{upper}={systemd} in slurmd.service"
    ),
}
OWN_USER = "--uid=$(id -u) "
"""A scope of the system is not below the limit of a user, as one of `systemd-run --user` is."""
_SHARED: Mapping[LaunchPlace, str] = {
    LaunchPlace.CONTAINER: "start the container with `docker run --shm-size=16g`, or with --ipc=host",
    LaunchPlace.KUBERNETES: "mount an emptyDir with `medium: Memory` at /dev/shm",
}
_TASKS: Mapping[LaunchPlace, str] = {
    LaunchPlace.SYSTEMD: "run `systemctl edit UNIT`, set TasksMax=infinity under [Service], and restart it",
    LaunchPlace.CONTAINER: "start the container with `docker run --pids-limit -1`",
    LaunchPlace.KUBERNETES: "raise podPidsLimit of the kubelet",
}
_MEMORY: Mapping[LaunchPlace, str] = {
    LaunchPlace.SYSTEMD: "run `systemctl set-property UNIT MemoryMax={gib}G`",
    LaunchPlace.CONTAINER: "start the container with `docker run --memory={gib}g`",
    LaunchPlace.KUBERNETES: "set resources.limits.memory to {gib}Gi",
    LaunchPlace.SLURM: "submit the job with `sbatch --mem={gib}G`",
}


def raise_limit(resource: Resource, host: Host, value: str = "unlimited") -> str:
    """Return how to raise a limit of each process to `value`, a number or `unlimited`."""
    names, limit = _NAMES[resource], host.limits.get(resource)
    wanted = float("inf") if value == "unlimited" else float(value)
    if limit is not None and limit.hard >= wanted:
        return f"run `ulimit {names.flag} {value}` in the shell or script that starts the training"
    systemd, docker = ("infinity", "-1") if value == "unlimited" else (value, value)
    return _RAISE[host.place].format(
        item=names.item, upper=names.item.upper(), value=value, systemd=systemd, docker=docker
    )


def enlarge_shared_memory(host: Host) -> str:
    """Return how to enlarge /dev/shm."""
    return _SHARED.get(host.place, "run `sudo mount -o remount,size=16G /dev/shm`")


def raise_tasks(host: Host) -> str:
    """Return how to permit more processes and threads in a cgroup."""
    return _TASKS.get(host.place, "raise pids.max of the cgroup of this session")


def raise_memory(host: Host, memory: Memory, needed_bytes: int) -> str:
    """Return how to permit `needed_bytes` of memory here."""
    if needed_bytes > memory.total_bytes:
        return f"use a machine with at least {bytes_text(needed_bytes)} of memory, or more machines"
    if memory.limit_bytes is None:
        return "end other programs on this machine, as `ps aux --sort -rss | head` lists them"
    gib = -(-needed_bytes >> 30) if needed_bytes >> 30 else 1
    if host.place in _MEMORY:
        return _MEMORY[host.place].format(gib=gib)
    if host.has_systemd:
        return f"run the training as `{scope(gib) if host.is_root else f'sudo {scope(gib, OWN_USER)}'}`"
    return f"raise the limit in {memory.limited_at}"


def scope(gib: int, options: str = "") -> str:
    """Return the command that runs another one with a memory limit of its own."""
    return f"systemd-run {options}--scope -p MemoryMax={gib}G -- CMD"


def on_machine(host: Host, command: str) -> str:
    """Return where to run a command that a container cannot."""
    if host.place in (LaunchPlace.CONTAINER, LaunchPlace.KUBERNETES):
        return f"run `{command}` on the host of the container"
    return f"run `{command}`"


def allow_ptrace(host: Host) -> str:
    """Return how to permit stack dumps of processes that this one did not start."""
    if host.place is LaunchPlace.CONTAINER:
        return "start the container with `docker run --cap-add SYS_PTRACE`"
    if host.place is LaunchPlace.KUBERNETES:
        return "add the capability SYS_PTRACE to the securityContext of the pod"
    return "run `sudo sysctl kernel.yama.ptrace_scope=0`"
