"""Facts of machines that a folder imitates: files as the kernel shows them."""

import os
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from tracker.adapters.host.cgroups import cores
from tracker.adapters.host.machine import read_host, read_memory, read_network, read_volume
from tracker.domain.readiness.training.facts import IPC_LOCK, UNLIMITED, Host, LaunchPlace, Memory, Resource, Rlimit

KIB = 1 << 10
LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max processes             96364                96364                processes
Max open files            1024                 524288               files
Max locked memory         8388608              unlimited            bytes
"""
STATUS = "Name:\ttracker\nUid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000004000\n"
MEMINFO = "MemTotal:  1000 kB\nMemFree:  100 kB\nMemAvailable:  800 kB\nSwapTotal:  50 kB\nSwapFree:  20 kB\n"
QUOTA = (("quota", "25000"), ("period", "100000"))
V2 = {"proc/self/cgroup": "0::/user.slice/job.scope\n"}
V1 = {"proc/self/cgroup": "5:cpu,memory:/user/job\n3:pids:/user\n0::/\n"}


def machine(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_limits_and_rights_of_this_process_are_read(tmp_path: Path) -> None:
    files = {"proc/self/limits": LIMITS, "proc/self/status": STATUS, "proc/sys/kernel/yama/ptrace_scope": "1\n"}
    files |= {"sys/class/infiniband/mlx5_0/x": "", "run/systemd/system/x": "", "run/systemd/timesync/synchronized": ""}
    host = read_host(machine(tmp_path, files), {"SLURM_NNODES": "4"})
    assert host.limits == {
        Resource.LOCKED: Rlimit(soft=8 << 20, hard=UNLIMITED),
        Resource.FILES: Rlimit(soft=1024, hard=524_288),
        Resource.PROCESSES: Rlimit(soft=96_364, hard=96_364),
    }
    assert (host.is_root, host.has_infiniband, host.has_systemd, host.may(IPC_LOCK)) == (False, True, True, True)
    assert (host.ptrace_scope, host.is_clock_synchronized, host.nodes, host.process_room) == (1, True, 4, None)


def test_an_empty_machine_is_not_known_and_no_error(tmp_path: Path) -> None:
    host = read_host(tmp_path, {})
    assert host == Host(is_clock_synchronized=host.is_clock_synchronized)
    assert read_memory(tmp_path) is None
    network = read_network(tmp_path, {})
    assert (network.listening, network.interfaces) == (None, ())


@pytest.mark.parametrize(
    ("files", "environment", "place"),
    [
        ({}, {}, LaunchPlace.SHELL),
        ({"proc/self/cgroup": "0::/user.slice/user-1000.slice/session-2.scope\n"}, {}, LaunchPlace.SHELL),
        ({"proc/self/cgroup": "0::/user.slice/user-1000.slice/user@1000.service/app.scope\n"}, {}, LaunchPlace.SHELL),
        ({"proc/self/cgroup": "0::/system.slice/train.service\n"}, {}, LaunchPlace.SYSTEMD),
        ({"proc/self/cgroup": "4:memory:/docker/0123abc\n"}, {}, LaunchPlace.CONTAINER),
        ({".dockerenv": ""}, {}, LaunchPlace.CONTAINER),
        ({"run/.containerenv": ""}, {}, LaunchPlace.CONTAINER),
        ({"proc/self/cgroup": "0::/kubepods.slice/pod1\n"}, {}, LaunchPlace.KUBERNETES),
        ({".dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, LaunchPlace.KUBERNETES),
        ({"proc/self/cgroup": "0::/system.slice/slurmstepd.scope/job_7/step_0\n"}, {}, LaunchPlace.SLURM),
        ({".dockerenv": ""}, {"SLURM_JOB_ID": "7"}, LaunchPlace.SLURM),
    ],
)
def test_what_started_the_process_is_seen(
    tmp_path: Path, files: dict[str, str], environment: dict[str, str], place: LaunchPlace
) -> None:
    assert read_host(machine(tmp_path, files), environment).place is place


def memory(limit: int | None, at: str, room: int | None) -> Memory:
    return Memory(
        total_bytes=1000 * KIB,
        available_bytes=800 * KIB,
        limit_bytes=limit,
        limited_at=at,
        limit_room_bytes=room,
        swap_bytes=50 * KIB,
        swap_free_bytes=20 * KIB,
    )


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, (None, "", None)),
        (V2, (None, "", None)),
        (V2 | {"sys/fs/cgroup/user.slice/job.scope/memory.max": "max\n"}, (None, "", None)),
        (V2 | {"sys/fs/cgroup/user.slice/job.scope/memory.max": str(1 << 40)}, (None, "", None)),
        (
            # The lowest limit is one above, and the own cgroup is nearly full but for its page cache.
            V2
            | {
                "sys/fs/cgroup/user.slice/memory.max": "300000",
                "sys/fs/cgroup/user.slice/memory.current": "1000",
                "sys/fs/cgroup/user.slice/job.scope/memory.max": "400000",
                "sys/fs/cgroup/user.slice/job.scope/memory.current": "390000",
                "sys/fs/cgroup/user.slice/job.scope/memory.stat": "anon 5\ninactive_file 40000\n",
            },
            (300_000, "sys/fs/cgroup/user.slice", 50_000),
        ),
        (
            V1
            | {
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
                "sys/fs/cgroup/memory/user/job/memory.limit_in_bytes": "200000",
                "sys/fs/cgroup/memory/user/job/memory.usage_in_bytes": "150000",
                "sys/fs/cgroup/memory/user/job/memory.stat": "inactive_file 1\ntotal_inactive_file 50000\n",
            },
            (200_000, "sys/fs/cgroup/memory/user/job", 100_000),
        ),
        (
            # In a container the path is that of the host, and the root is the own cgroup.
            {"proc/self/cgroup": "4:memory:/docker/0123\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "5000"},
            (5000, "sys/fs/cgroup/memory", 5000),
        ),
    ],
    ids=["no cgroup", "v2 without", "v2 max", "v2 above the machine", "v2 nested", "v1", "container"],
)
def test_the_lowest_limit_up_the_tree_of_cgroups_counts(
    tmp_path: Path, files: dict[str, str], expected: tuple[int | None, str, int | None]
) -> None:
    root = machine(tmp_path, {"proc/meminfo": MEMINFO} | files)
    limit, at, room = expected
    assert read_memory(root) == memory(limit, at and str(root / at), room)


@pytest.mark.parametrize(
    ("files", "room"),
    [
        (V2 | {"sys/fs/cgroup/user.slice/pids.max": "100", "sys/fs/cgroup/user.slice/pids.current": "30"}, 70),
        (V1 | {"sys/fs/cgroup/pids/user/pids.max": "max", "sys/fs/cgroup/pids/pids.max": "9"}, 9),
    ],
)
def test_the_processes_that_cgroups_permit_are_counted(tmp_path: Path, files: dict[str, str], room: int) -> None:
    assert read_host(machine(tmp_path, files), {}).process_room == room


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (V2 | {"sys/fs/cgroup/user.slice/cpu.max": "50000 100000\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 0.5),
        (V1 | {f"sys/fs/cgroup/cpu/user/cpu.cfs_{name}_us": text for name, text in QUOTA}, 0.25),
        (V1 | {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, None),
        ({}, None),
    ],
)
def test_the_cores_that_cgroups_permit_are_counted(
    tmp_path: Path, files: dict[str, str], expected: float | None
) -> None:
    assert cores(machine(tmp_path, files)) == (expected or len(os.sched_getaffinity(0)))


def test_root_of_a_user_namespace_is_not_root_of_the_machine(tmp_path: Path) -> None:
    status = "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n"
    files = {"proc/self/status": status, "proc/self/uid_map": "         0       1000          1\n"}
    inside = read_host(machine(tmp_path / "inside", files), {})
    assert (inside.is_root, inside.may(IPC_LOCK)) == (False, False)
    outside = read_host(machine(tmp_path / "outside", {"proc/self/status": status}), {})
    assert (outside.is_root, outside.may(IPC_LOCK)) == (True, True)


TCP = """  sl  local_address rem_address   st tx_queue rx_queue tr
   0: 00000000:733C 00000000:0000 0A 00000000:00000000 00
   1: 0100007F:0016 0100007F:733D 01 00000000:00000000 00
"""


@pytest.mark.parametrize(
    ("address", "is_master"),
    [("", True), ("localhost", True), ("127.0.0.1", True), (socket.gethostname(), True), ("192.0.2.7", False)],
)
def test_ports_in_use_and_interfaces_are_read(tmp_path: Path, address: str, is_master: bool) -> None:  # noqa: FBT001
    root = machine(tmp_path, {"proc/net/tcp": TCP, "sys/class/net/eth0/x": "", "sys/class/net/lo/x": ""})
    environment = {"MASTER_ADDR": address, "MASTER_PORT": "29500", "NCCL_SOCKET_IFNAME": "eth"}
    network = read_network(root, environment)
    assert (network.listening, network.interfaces) == (frozenset({29_500}), ("eth0", "lo"))
    assert (network.master_port, network.is_master, network.socket_ifname) == ("29500", is_master, "eth")


def test_a_folder_that_does_not_exist_yet_is_on_the_disk_of_the_one_above(tmp_path: Path) -> None:
    found = read_volume(tmp_path / "runs" / "new")
    assert found is not None
    real = os.statvfs(tmp_path)
    assert (found.folder, found.total_bytes, found.is_writable) == (str(tmp_path), real.f_blocks * real.f_frsize, True)
