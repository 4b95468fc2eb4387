"""The rules of `tracker.ports.Machine`, for the fake and for this machine; and the kernel's messages."""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import psutil
import pytest

from eval_jobs.errors import ConfigError
from eval_jobs.host.proc import has_own_pids
from eval_jobs.records.gpu_health import GpuDevice, GpuHealth, GpuMemory
from tests.fakes.machine import FakeMachine
from tracker.adapters.host.cgroups import memory_folder, memory_kills
from tracker.adapters.processes.kernel_log import KernelJournal, KernelLog
from tracker.adapters.processes.machine import SystemMachine
from tracker.domain.health.processes.leaks import Usage
from tracker.domain.health.processes.seen import ProcessId
from tracker.ports.health import Machine

OURS = ProcessId(pid=os.getpid(), created_s=psutil.Process().create_time())
GONE = ProcessId(pid=2**22 + 1, created_s=1.0)


@dataclass
class Prepared:
    machine: Machine
    print: Callable[[str, int | None], None]
    """Has the kernel print a message about a process, or about none."""


@pytest.fixture(params=["fake", "system"])
def prepared(request: pytest.FixtureRequest, tmp_path: Path) -> Prepared:
    if request.param == "fake":
        fake = FakeMachine(
            used=Usage(memory_bytes=5 << 20, memory_limit_bytes=1 << 30, descriptors=9, descriptor_limit=99)
        )
        return Prepared(machine=fake, print=lambda text, pid: fake.messages.append((text, pid)))
    kmsg = tmp_path / "kmsg"
    kmsg.write_text("4,1,5,-;printed before\n")
    machine = SystemMachine(kernel=KernelLog(path=kmsg, has_own_pids=False))
    machine.kernel_lines([])

    def printed(text: str, _: int | None) -> None:
        with kmsg.open("a") as file:
            file.write(f"4,2,6,-;{text}\n")

    return Prepared(machine=machine, print=printed)


def test_messages_are_returned_once_without_those_about_other_processes(prepared: Prepared) -> None:
    for text, pid in (("Killed process 7 (python)", 7), ("Killed process 8 (python)", 8), ("link is down", None)):
        prepared.print(text, pid)
        expected = [] if pid == 8 else [text]
        assert prepared.machine.kernel_lines([7]) == expected
    assert prepared.machine.kernel_lines([7]) == []


def test_what_processes_use_is_returned_with_its_limits(prepared: Prepared) -> None:
    found = prepared.machine.usage([OURS, GONE])
    assert found.memory_bytes is not None
    assert found.memory_limit_bytes is not None
    assert 1 << 20 < found.memory_bytes < found.memory_limit_bytes
    assert found.descriptors is not None
    assert found.descriptor_limit is not None
    assert 0 < found.descriptors < found.descriptor_limit


def test_a_machine_without_gpus_has_none(prepared: Prepared) -> None:
    for _ in range(2):
        assert all(gpu.index >= 0 for gpu in prepared.machine.gpus([os.getpid()]))


def test_gpus_that_cannot_be_read_for_a_while_are_read_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    well = (GpuHealth(index=0),)
    answers: list[object] = [well, ConfigError("NVML failed", hint="x"), RuntimeError("other"), well]

    def read() -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr("tracker.adapters.processes.machine.read_gpu_health", read)
    machine = SystemMachine()
    assert [machine.gpus([1]) for _ in range(4)] == [well, (), (), well]
    assert caplog.messages == ["GPUs cannot be read now: NVML failed"]
    answers[:] = [RuntimeError("no driver"), well]
    without = SystemMachine()
    assert [without.gpus([1]), without.gpus([1]), answers] == [(), (), [well]]


JOURNAL = r"""#!/bin/sh
case "$*" in
*--lines=1*) echo '{"__CURSOR":"s=0f46;i=155","MESSAGE":"before","SYSLOG_IDENTIFIER":"kernel"}' ;;
*"--after-cursor=s=0f46;i=155"*) cat <<END
{"__CURSOR":"s=0f46;i=156","SYSLOG_IDENTIFIER":"NVRM","MESSAGE":"Xid (PCI:0000:c1:00): 79, pid=7, GPU is lost"}
{"__CURSOR":"s=0f46;i=157","SYSLOG_IDENTIFIER":"kernel","MESSAGE":"Out of memory: Killed process 9 (python)"}
{"__CURSOR":"s=0f46;i=158","SYSLOG_IDENTIFIER":"kernel","MESSAGE":[27,255]}
{"__CURSOR":"s=0f46;i=159","SYSLOG_IDENTIFIER":"python","SYSLOG_PID":"7","MESSAGE":"segfault at 0 ip 00 sp 00 error 4"}
END
;;
*) echo "Failed to seek to cursor: Invalid argument" >&2; exit 1 ;;
esac
"""
"""What journalctl of systemd 252 prints; it keeps the begin of a message apart."""


def test_a_kernel_log_that_may_not_be_read_is_that_of_the_journal_or_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journalctl = tmp_path / "journalctl"
    journalctl.write_text(JOURNAL)
    journalctl.chmod(0o755)
    seconds = count(step=400.0)
    journal = KernelJournal(command=(str(journalctl), "--dmesg"), clock=lambda: next(seconds))
    kernel = KernelLog(path=tmp_path / "none", journal=journal, has_own_pids=False)
    with caplog.at_level("INFO"):
        readings = [kernel.lines([7]) for _ in range(5)]
    ours = ["NVRM: Xid (PCI:0000:c1:00): 79, pid=7, GPU is lost", "python[7]: segfault at 0 ip 00 sp 00 error 4"]
    assert readings == [ours, [], [], ours, []]  # a cursor that is gone begins again
    assert caplog.messages == []
    without = KernelLog(path=tmp_path / "none", journal=KernelJournal(command=(str(tmp_path / "absent"),)))
    with caplog.at_level("INFO"):
        assert [without.lines([1]), without.lines([1])] == [[], []]
    assert len(caplog.messages) == 1
    without.close()


def used_by(pid: int, index: int, bus: str | None) -> GpuHealth:
    memory = GpuMemory(used_bytes=1, total_bytes=2, by_process={pid: None})
    device = GpuDevice(pci_bus_id=None if bus is None else f"00000000:{bus}:00.0")
    return GpuHealth(index=index, device=device, memory=memory)


LOST = GpuHealth(index=0, is_lost=True)
OURS_IS_C1 = (used_by(7, 0, "C1"), used_by(8, 1, "3B"))


@pytest.mark.parametrize(
    ("readings", "buses"),
    [
        ([], "c1 3b"),
        ([OURS_IS_C1], "c1"),
        ([(used_by(6, 0, "C1"), used_by(8, 1, "3B"))], "c1 3b"),
        ([(LOST, used_by(7, 1, "3B"))], "3b"),
        ([OURS_IS_C1, (LOST, used_by(7, 1, "3B"))], "3b c1"),
        ([OURS_IS_C1, ()], "c1"),
        ([OURS_IS_C1, (used_by(7, 0, None),)], "c1 3b"),
    ],
)
def test_the_gpus_of_the_training_are_those_of_the_last_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, readings: list[tuple[GpuHealth, ...]], buses: str
) -> None:
    kmsg = tmp_path / "kmsg"
    kmsg.touch()
    machine = SystemMachine(kernel=KernelLog(path=kmsg, has_own_pids=False))
    machine.kernel_lines([7])
    left = list(readings)
    monkeypatch.setattr("tracker.adapters.processes.machine.read_gpu_health", lambda: left.pop(0))
    for _ in readings:
        machine.gpus([7])
    found = []
    for bus in ("c1", "3b"):
        with kmsg.open("a") as file:
            file.write(f"4,2,6,-;NVRM: Xid (PCI:0000:{bus}:00): 79, GPU is lost\n")
        if machine.kernel_lines([7]):
            found.append(bus)
    assert sorted(found) == sorted(buses.split())


def test_in_a_container_messages_about_processes_cannot_be_matched(tmp_path: Path) -> None:
    kmsg = tmp_path / "kmsg"
    kmsg.touch()
    kernel = KernelLog(path=kmsg, has_own_pids=True)
    kernel.lines([7])
    found = []
    for text in ("Killed process 7 (python)", "link is down"):
        with kmsg.open("a") as file:
            file.write(f"4,1,5,-;{text}\n")
        found += kernel.lines([7])
    assert found == ["link is down"]
    kernel.close()


def test_a_container_is_known_by_its_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eval_jobs.host.proc._PROC", tmp_path)
    assert not has_own_pids()
    namespace = tmp_path / "self/ns/pid"
    namespace.parent.mkdir(parents=True)
    for name, is_own in (("pid:[4026531836]", False), ("pid:[4026532100]", True)):
        namespace.unlink(missing_ok=True)
        namespace.symlink_to(name)
        assert has_own_pids() == is_own


def test_kills_are_read_from_both_versions_of_cgroups(tmp_path: Path) -> None:
    groups = tmp_path / "sys/fs/cgroup"
    second, first = groups / "job", groups / "memory/slurm/job_1"
    for folder in (second, first, *(tmp_path / "proc" / str(pid) for pid in (1, 2, 3))):
        folder.mkdir(parents=True)
    (tmp_path / "proc/2/cgroup").write_text("0::/job\n")
    (second / "memory.events").write_text("low 0\nmax 7\noom 2\noom_kill 3\n")
    (tmp_path / "proc/1/cgroup").write_text("9:cpu:/x\n4:memory:/slurm/job_1\n")
    (first / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    (tmp_path / "proc/3/cgroup").write_text("0::/not/mounted\n")
    assert [memory_folder(tmp_path, pid) for pid in (1, 2, 3, 4)] == [first, second, None, None]
    assert [memory_kills(folder) for folder in (first, second, tmp_path)] == [1, 3, 0]


def test_gpus_that_do_not_respond_are_not_waited_for_and_are_read_when_they_do(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers, asked = threading.Event(), list[int]()

    def hangs() -> tuple[GpuHealth, ...]:
        asked.append(1)
        answers.wait()
        return (GpuHealth(index=0),)

    monkeypatch.setattr("tracker.adapters.processes.machine.read_gpu_health", hangs)
    monkeypatch.setattr("tracker.adapters.processes.machine.GPU_TIMEOUT_S", 0.05)
    machine = SystemMachine()
    assert [machine.gpus([1]), machine.gpus([1])] == [(), ()]
    assert len(asked) == 1
    assert [message for message in caplog.messages if "GPUs" in message] == [
        "GPUs cannot be read now: NVML does not respond"
    ]
    answers.set()
    while not (found := machine.gpus([1])):
        threading.Event().wait(0.01)
    assert [gpu.index for gpu in found] == [0]
