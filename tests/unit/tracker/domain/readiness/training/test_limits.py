"""Facts about a machine, and the findings about a training on it."""

import re
from dataclasses import replace

import pytest

from tracker.domain.readiness.finding import Finding, Level
from tracker.domain.readiness.training.facts import (
    IPC_LOCK,
    SYS_PTRACE,
    UNLIMITED,
    Host,
    LaunchPlace,
    Memory,
    Network,
    Resource,
    Rlimit,
    Volume,
)
from tracker.domain.readiness.training.limits import (
    checkpoint_disk_finding,
    is_selected,
    limit_findings,
    memory_findings,
    network_findings,
    shared_memory_finding,
    workers_finding,
)

GIB, MIB = 1 << 30, 1 << 20
FREE = Rlimit(soft=UNLIMITED, hard=UNLIMITED)
GOOD = Host(
    limits={Resource.LOCKED: FREE, Resource.FILES: Rlimit(soft=65536, hard=65536), Resource.PROCESSES: FREE},
    is_clock_synchronized=True,
)


def limited(resource: Resource, soft: float, hard: float | None = None, *, host: Host = GOOD) -> Host:
    return replace(host, limits={**host.limits, resource: Rlimit(soft=soft, hard=soft if hard is None else hard)})


LOCKED, INFINIBAND = limited(Resource.LOCKED, 8 * MIB), replace(GOOD, has_infiniband=True)


def test_a_machine_without_limits_needs_no_action() -> None:
    found = list(limit_findings(GOOD))
    assert {one.level for one in found} == {Level.OK}
    assert not "".join(one.hint for one in found)


@pytest.mark.parametrize(
    ("host", "subject", "level", "message", "hint"),
    [
        (LOCKED, "locked memory", "ok", "at most 8.4 MB; only InfiniBand and", "memlock unlimited"),
        (replace(LOCKED, has_infiniband=True), "locked memory", "warning", "InfiniBand locks", "memlock unlimited"),
        (
            replace(LOCKED, has_infiniband=True, nodes=2),
            "locked memory",
            "error",
            "InfiniBand locks",
            r"`\* - memlock unlimited`",
        ),
        (replace(LOCKED, has_infiniband=True, capabilities=1 << IPC_LOCK), "locked memory", "ok", "^unlimited$", "^$"),
        (limited(Resource.LOCKED, GIB, host=INFINIBAND), "locked memory", "warning", "at most 1.1 GB", "limits.conf"),
        (
            limited(Resource.LOCKED, 8 * MIB, UNLIMITED, host=INFINIBAND),
            *("locked memory", "warning", "at most 8.4 MB", "^run `ulimit -l unlimited` in the shell"),
        ),
        (limited(Resource.FILES, 1024, 1 << 20), "open files", "warning", "at most 1024: ", "`ulimit -n 65536`"),
        (limited(Resource.FILES, 1024, 4096), "open files", "warning", "at most 1024: ", r"`\* - nofile 65536`"),
        (limited(Resource.PROCESSES, 512), "processes", "warning", "at most 512 of this user", "nproc 65536"),
        (replace(limited(Resource.PROCESSES, 512), is_root=True), "processes", "ok", "unlimited", "^$"),
        (replace(GOOD, process_room=99.0), "processes", "warning", "the cgroup permits 99 more", "pids.max"),
        (replace(GOOD, is_clock_synchronized=None), "clock", "ok", "not known", "^$"),
        (replace(GOOD, is_clock_synchronized=False), "clock", "info", "not synchronized", "^run `sudo timedatectl"),
        (
            replace(GOOD, is_clock_synchronized=False, nodes=2, place=LaunchPlace.CONTAINER),
            *("clock", "warning", "logs of 2 machines", "set-ntp true` on the host of the container"),
        ),
        (
            replace(GOOD, has_py_spy=False),
            "stack dumps",
            "ok",
            "py-spy is not installed",
            r"checkpoint-tracker\[stacks\]",
        ),
        (replace(GOOD, ptrace_scope=1), "stack dumps", "ok", "ptrace_scope is 1", "sysctl kernel.yama.ptrace_scope=0"),
        (replace(GOOD, ptrace_scope=1, capabilities=1 << SYS_PTRACE), "stack dumps", "ok", "^permitted$", "^$"),
        (replace(GOOD, limits={}), "open files", "ok", "not known: /proc/self/limits", "^$"),
        (replace(GOOD, limits={}), "locked memory", "ok", "not known: /proc/self/limits", "^$"),
        (replace(GOOD, limits={}), "processes", "ok", "not known: /proc/self/limits", "^$"),
    ],
)
def test_each_limit_is_one_finding(host: Host, subject: str, level: str, message: str, hint: str) -> None:
    (found,) = [one for one in limit_findings(host) if one.subject == subject]
    check(found, level, message, hint)


@pytest.mark.parametrize(
    ("place", "locked", "tasks", "shared", "traced"),
    [
        (LaunchPlace.SHELL, "/etc/security/limits.conf", "pids.max", "mount -o remount,size=16G", "sysctl"),
        (
            LaunchPlace.SYSTEMD,
            "LimitMEMLOCK=infinity under",
            "TasksMax=infinity",
            "mount -o remount,size=16G",
            "sysctl",
        ),
        (LaunchPlace.CONTAINER, "--ulimit memlock=-1`", "--pids-limit -1", "--shm-size=16g", "--cap-add SYS_PTRACE"),
        (LaunchPlace.KUBERNETES, "unit of containerd", "podPidsLimit", "emptyDir", "securityContext"),
        (LaunchPlace.SLURM, "PropagateResourceLimitsExcept=MEMLOCK", "pids.max", "mount -o remount,size=16G", "sysctl"),
    ],
)
def test_the_fix_is_the_one_that_has_an_effect_where_the_training_runs(
    place: LaunchPlace, locked: str, tasks: str, shared: str, traced: str
) -> None:
    host = replace(LOCKED, place=place, has_infiniband=True, process_room=10.0, ptrace_scope=1)
    found = {one.subject: one for one in limit_findings(host)}
    assert locked in found["locked memory"].hint
    assert tasks in found["processes"].hint
    assert traced in found["stack dumps"].hint
    assert shared in shared_memory_finding(volume(64 * MIB), host).hint


def volume(total: int, free: int | None = None, *, files: int | None = None, is_writable: bool = True) -> Volume:
    free = total if free is None else free
    return Volume(folder="/out", total_bytes=total, free_bytes=free, free_files=files, is_writable=is_writable)


@pytest.mark.parametrize(
    ("found", "level", "message", "hint"),
    [
        (None, "ok", "not known: /dev/shm cannot be read", "^$"),
        (volume(64 * MIB), "warning", "67.1 MB of 67.1 MB free; .* bus error", "remount"),
        (volume(64 * GIB, 100), "warning", "100 B of 68.7 GB free", "killed training"),
        (volume(64 * GIB), "ok", "68.7 GB of 68.7 GB free", "^$"),
    ],
)
def test_shared_memory_is_large_enough_or_a_warning(found: Volume | None, level: str, message: str, hint: str) -> None:
    check(shared_memory_finding(found, GOOD), level, message, hint)


@pytest.mark.parametrize(
    ("found", "checkpoint", "saved_as", "level", "message"),
    [
        (volume(GIB), None, "", "ok", "/out: 1.1 GB free; the size of a checkpoint is not known"),
        (volume(10 * GIB), GIB, "checkpoint-5", "ok", "a checkpoint has 1.1 GB, as checkpoint-5$"),
        (volume(10 * GIB), 6 * GIB, "checkpoint-5", "warning", "the next two do not fit"),
        (volume(10 * GIB), 11 * GIB, "checkpoint-5", "error", "the next one does not fit"),
        (volume(10 * GIB), 11 * GIB, "", "warning", "with the state of Adam: the next two do not fit"),
        (volume(10 * GIB, files=0), GIB, "", "error", "only 0 inodes"),
        (volume(10 * GIB, files=20), GIB, "", "warning", "only 20 inodes"),
        (volume(10 * GIB, files=20_000), GIB, "", "ok", "with the state of Adam$"),
        (volume(GIB, is_writable=False), None, "", "error", "cannot write to /out"),
    ],
)
def test_the_next_two_checkpoints_fit_on_the_disk_or_it_is_said(
    found: Volume, checkpoint: int | None, saved_as: str, level: str, message: str
) -> None:
    check(checkpoint_disk_finding(found, checkpoint, saved_as), level, message, "" if level != "ok" else "^$")


MEMORY = Memory(total_bytes=64 * GIB, available_bytes=60 * GIB)


@pytest.mark.parametrize(
    ("memory", "host", "subject", "level", "message", "hint"),
    [
        (None, GOOD, "memory", "ok", "not known: /proc/meminfo", "^$"),
        (MEMORY, GOOD, "memory", "ok", "64.4 GB available of 68.7 GB, no limit", "^$"),
        (
            *(MEMORY, replace(GOOD, has_systemd=True, is_root=True), "memory", "ok", "no limit"),
            "`systemd-run --scope -p MemoryMax=54G -- CMD`",
        ),
        (
            *(MEMORY, replace(GOOD, has_systemd=True), "memory", "ok", "no limit"),
            "`systemd-run --user --scope -p MemoryMax=54G -- CMD`",
        ),
        (
            replace(MEMORY, limit_bytes=8 * GIB, limited_at="/sys/fs/cgroup/a", limit_room_bytes=GIB),
            *(GOOD, "memory", "ok", "1.1 GB available; the limit of /sys/fs/cgroup/a is 8.6 GB, of 68.7 GB", "^$"),
        ),
        (MEMORY, GOOD, "swap", "ok", "none", "^$"),
        (replace(MEMORY, swap_bytes=GIB, swap_free_bytes=GIB), GOOD, "swap", "ok", "0 B of 1.1 GB in use", "^$"),
        (replace(MEMORY, swap_bytes=GIB, swap_free_bytes=MIB), GOOD, "swap", "warning", "in use; .* stalls", "ps aux"),
    ],
)
def test_memory_and_swap(memory: Memory | None, host: Host, subject: str, level: str, message: str, hint: str) -> None:
    (found,) = [one for one in memory_findings(memory, host) if one.subject == subject]
    check(found, level, message, hint)


@pytest.mark.parametrize(
    ("workers", "ranks", "cores", "level", "hint"),
    [
        (4, 8, 32.0, "ok", "^$"),
        (8, 8, 32.0, "warning", "dataloader_num_workers to 4"),
        (0, 8, 0.5, "ok", "^$"),
        (2, 1, 1.5, "warning", "dataloader_num_workers to 1"),
    ],
)
def test_data_loaders_have_a_core_for_each_worker(
    workers: int, ranks: int, cores: float, level: str, hint: str
) -> None:
    check(workers_finding(workers, ranks, cores), level, f"{ranks} x {workers} workers", hint)


NETWORK = Network(listening=frozenset({22}), interfaces=("eth0", "lo"))
TAKEN = replace(NETWORK, listening=frozenset({29_500}))


@pytest.mark.parametrize(
    ("network", "subject", "level", "message"),
    [
        (NETWORK, "port", "ok", "29500 is free"),
        (TAKEN, "port", "warning", "29500 is in use, and torchrun and deepspeed use it"),
        (replace(TAKEN, master_port="29500"), "port", "error", "MASTER_PORT=29500 is in use"),
        (replace(TAKEN, master_port="29501"), "port", "ok", "29501 is free"),
        (replace(TAKEN, master_port="29500", is_master=False), "port", "ok", "MASTER_ADDR is another machine"),
        (replace(NETWORK, master_port="http"), "port", "error", "MASTER_PORT=http is no port"),
        (replace(NETWORK, master_port="70000"), "port", "error", "MASTER_PORT=70000 is no port"),
        (replace(NETWORK, listening=None), "port", "ok", "not known"),
        (replace(NETWORK, socket_ifname="eth"), "interface", "ok", "selects one of eth0, lo"),
        (
            replace(NETWORK, socket_ifname="ib0"),
            "interface",
            "error",
            "NCCL_SOCKET_IFNAME=ib0 selects none of eth0, lo",
        ),
        (replace(NETWORK, socket_ifname="ib0", interfaces=()), "interface", "ok", "not known"),
    ],
)
def test_port_and_interface_are_usable_or_it_is_said(network: Network, subject: str, level: str, message: str) -> None:
    (found,) = [one for one in network_findings(network) if one.subject == subject]
    check(found, level, message, "" if level != "ok" else "^$")


@pytest.mark.parametrize(
    ("names", "selected"),
    [
        ("eth", "eth0 eth1"),
        ("=eth0", "eth0"),
        ("eth1,ib", "eth1 ib0"),
        ("^eth,lo", "ib0"),
        ("^=eth0", "eth1 ib0 lo"),
        ("=ib0,lo", "ib0 lo"),
    ],
)
def test_interfaces_are_selected_as_nccl_does(names: str, selected: str) -> None:
    assert [one for one in ("eth0", "eth1", "ib0", "lo") if is_selected(one, names)] == selected.split()


def check(found: Finding, level: str, message: str, hint: str) -> None:
    assert found.level == level
    assert re.search(message, found.message)
    assert re.search(hint, found.hint)
    assert found.hint or found.level is Level.OK
