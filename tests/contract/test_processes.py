"""The rules of `tracker.ports.Processes`, for the fake and for the processes of this machine."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.fakes.processes import FakeProcesses
from tests.requires import requires_package
from tracker.adapters.processes.ends import ExitWatch
from tracker.adapters.processes.identity import created_s
from tracker.adapters.processes.kernel_log import KernelLog
from tracker.adapters.processes.machine import SystemMachine
from tracker.adapters.processes.stacks import AT_ONCE, Stacks, parsed_stack
from tracker.adapters.processes.system import SystemProcesses
from tracker.domain.health.processes.leaks import Usage
from tracker.domain.health.processes.seen import ProcessId, ProcessState, SeenProcess
from tracker.ports.health import Processes

SLEEPER = """
import sys, time
kept, read = open(sys.argv[1] + "/kept.txt", "w"), open(sys.argv[0])
print("up", flush=True)
def wait_for_others():
    time.sleep(600)
wait_for_others()
"""


@dataclass
class Machine:
    """Processes, and one of them that the test controls."""

    processes: Processes
    process: ProcessId
    end: Callable[[], None]


@pytest.fixture(params=["fake", "system"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine]:
    if request.param == "fake":
        fake = FakeProcesses()
        seen = SeenProcess(
            id=ProcessId(pid=7, created_s=1.0),
            parent=os.getpid(),
            name="python",
            arguments=("python", "sleeper.py", str(tmp_path)),
            variables={"RANK": "3"},
            outputs=(str(tmp_path / "out.log"),),
            writes=(str(tmp_path / "kept.txt"),),
        )
        one = fake.start(seen)
        yield Machine(processes=fake, process=one, end=lambda: fake.end(one, time.time()))
        return
    with sleeping(tmp_path) as child:
        one = ProcessId(pid=child.pid, created_s=created_s(child.pid))

        def end() -> None:
            child.kill()
            child.wait()

        yield Machine(processes=SystemProcesses(), process=one, end=end)


class sleeping:  # noqa: N801 - a context manager
    """A Python program that sleeps, with its output in a file of `folder`."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self._folder, self._variables = folder, variables

    def __enter__(self) -> subprocess.Popen[bytes]:
        script, out = self._folder / "sleeper.py", self._folder / "out.log"
        script.write_text(SLEEPER)
        environment = {**os.environ, "RANK": "3", "SECRET_TOKEN": "hf_abc", **self._variables}
        with out.open("wb") as file:
            command = [sys.executable, str(script), str(self._folder)]
            self._child = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
        while not out.read_bytes():
            time.sleep(0.01)
        return self._child

    def __exit__(self, *_: object) -> None:
        self._child.kill()
        self._child.wait()


def test_all_processes_are_returned_with_what_identifies_them(machine: Machine, tmp_path: Path) -> None:
    (found,) = [one for one in machine.processes.all() if one.id == machine.process]
    assert (found.parent, found.rank) == (os.getpid(), 3)
    assert found.arguments[-1] == str(tmp_path)
    assert (found.outputs, found.writes) == ((str(tmp_path / "out.log"),), (str(tmp_path / "kept.txt"),))
    assert "SECRET_TOKEN" not in found.variables
    assert found in machine.processes.all()


def test_what_a_process_does_is_returned_until_it_has_ended(machine: Machine) -> None:
    sample = machine.processes.samples([machine.process])[machine.process]
    assert sample.state is ProcessState.SLEEPING
    assert sample.moved_bytes is not None
    another = ProcessId(pid=machine.process.pid, created_s=machine.process.created_s - 50)
    states = machine.processes.samples([another, machine.process])
    assert [states[one].state for one in (another, machine.process)] == [ProcessState.GONE, ProcessState.SLEEPING]
    assert machine.processes.ended([another, machine.process]) == {another}
    machine.end()
    assert machine.processes.ended([machine.process]) == {machine.process}
    gone = machine.processes.samples([machine.process])[machine.process]
    assert gone.state is ProcessState.GONE
    assert machine.process not in [one.id for one in machine.processes.all()]


def test_the_end_of_a_process_that_was_waited_for_is_known(machine: Machine) -> None:
    before_s = time.time()
    assert machine.processes.exits([machine.process]) == {}
    assert machine.processes.ended([machine.process]) == frozenset()
    machine.end()
    while not (found := machine.processes.exits([machine.process])):
        time.sleep(0.01)
    assert before_s <= found[machine.process] <= time.time()
    assert machine.processes.ended([machine.process]) == {machine.process}
    never = ProcessId(pid=machine.process.pid, created_s=1.5)
    assert machine.processes.exits([never]) == {}


def test_kills_are_counted_and_none_is_known_of_no_process(machine: Machine) -> None:
    assert machine.processes.memory_kills([machine.process]) >= 0
    assert machine.processes.memory_kills([]) == 0


def test_a_stack_names_the_function_and_does_not_stop_the_process(tmp_path: Path) -> None:
    requires_package("py-spy")
    with sleeping(tmp_path) as child:
        one = ProcessId(pid=child.pid, created_s=created_s(child.pid))
        sample = SystemProcesses().samples([one])[one]
        assert sample.stack is not None
        assert [frame.function for frame in sample.stack][:2] == ["wait_for_others", "<module>"]
        assert psutil.Process(child.pid).status() == psutil.STATUS_SLEEPING


def none_of(stacks: Stacks, pids: Sequence[int]) -> bool:
    """Return whether there is a reason at most for each process."""
    return all(isinstance(one, str) for one in stacks.of(pids).values())


def test_without_py_spy_or_with_one_that_hangs_or_fails_there_is_no_stack(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scripts = {
        "hangs": "#!/bin/sh\nexec sleep 60\n",
        "denied": "#!/bin/sh\necho 'Error: Permission Denied: Try again with sudo' >&2\nexit 1\n",
        "old": "#!/bin/sh\necho 'Error: Unsupported version of Python: 3.19' >&2\nexit 1\n",
        "other": "#!/bin/sh\necho 'not json'\n",
        "none": "#!/bin/sh\necho '[]'\n",
    }
    denied, old = "Error: Permission Denied: Try again with sudo", "Error: Unsupported version of Python: 3.19"
    for name, text in scripts.items():
        program = tmp_path / name
        program.write_text(text)
        program.chmod(0o755)
        stacks = Stacks(program=str(program), timeout_s=0.3)
        assert none_of(stacks, [os.getpid(), 1])
        assert none_of(stacks, [os.getpid()])
    assert none_of(Stacks(program=str(tmp_path / "missing")), [1])
    assert [message for message in caplog.messages if "py-spy" in message] == [
        "no stacks: py-spy took longer than 0 s, and was ended",
        f"no stacks: py-spy may not trace processes: {denied}; hint: see `tracker doctor`",
        f"no stacks: py-spy cannot read the process: {old}; hint: update py-spy if it is older than its Python",
        *["no stacks: the output of py-spy cannot be read"] * 2,
        "no stacks: py-spy cannot be started: No such file or directory",
    ]


def test_all_stacks_of_a_sample_have_one_deadline(tmp_path: Path) -> None:
    program, started = tmp_path / "hangs", tmp_path / "started"
    program.write_text(f"#!/bin/sh\necho x >>{started}\nexec sleep 60\n")
    program.chmod(0o755)
    assert none_of(Stacks(program=str(program), timeout_s=60.0, all_s=0.5), range(1, 65))
    assert len(started.read_text().splitlines()) <= AT_ONCE


def test_a_py_spy_that_no_signal_ends_is_left_behind_and_not_joined_by_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "hangs"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    kill = subprocess.Popen.kill
    left: list[subprocess.Popen[bytes]] = []

    def ignored(process: subprocess.Popen[bytes]) -> None:
        left.append(process)

    monkeypatch.setattr(subprocess.Popen, "kill", ignored)
    monkeypatch.setattr("tracker.adapters.processes.stacks.KILL_S", 0.01)
    stacks = Stacks(program=str(program), timeout_s=0.05)
    assert none_of(stacks, range(1, AT_ONCE + 1))
    assert none_of(stacks, [1])
    assert len(left) == AT_ONCE
    for process in left:
        kill(process)
        process.wait()
    assert none_of(stacks, [1])
    assert len(left) == AT_ONCE + 1
    kill(left[-1])
    left[-1].wait()


@pytest.mark.parametrize("text", [b"", b"{}", b"[1]", b'[{"thread_name": "MainThread"}]', b"[[]]", b"\xff", b"null"])
def test_output_of_another_form_is_no_stack(text: bytes) -> None:
    assert parsed_stack(text, 1) is None


def test_the_number_of_a_process_that_was_used_before_and_a_clock_that_is_set_confuse_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sleeping(tmp_path) as child:
        processes = SystemProcesses()
        (found,) = [one for one in processes.all() if one.id.pid == child.pid]
        boot_s = psutil.boot_time()
        monkeypatch.setattr("psutil._pslinux.boot_time", lambda: boot_s + 3600)
        assert processes.samples([found.id])[found.id].state is ProcessState.SLEEPING
        assert found in processes.all()
        monkeypatch.setattr("tracker.adapters.processes.system.created_s", lambda pid: created_s(pid) + 5)
        (other,) = [one for one in processes.all() if one.id.pid == child.pid]
        assert other.id.created_s == found.id.created_s + 5


def test_a_script_that_becomes_the_training_is_read_again(tmp_path: Path) -> None:
    program = tmp_path / "sleeper.py"
    program.write_text(SLEEPER)
    script = f"read line; RANK=5 exec {sys.executable} {program} {tmp_path}"
    processes = SystemProcesses()
    with subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:

        def seen() -> SeenProcess:
            return next(one for one in processes.all() if one.id.pid == child.pid)

        assert child.stdin is not None
        assert child.stdout is not None
        before = seen()
        child.stdin.write(b"go\n")
        child.stdin.flush()
        assert child.stdout.readline() == b"up\n"
        after = seen()
        child.kill()
    assert (before.id, before.name, before.rank) == (after.id, "sh", None)
    assert (after.rank, after.arguments[1:]) == (5, (str(program), str(tmp_path)))


def test_settings_files_and_links_of_a_process_are_read_and_other_processes_that_end_are_left_out(
    tmp_path: Path,
) -> None:
    settings = tmp_path / "sft.yaml"
    settings.write_text("model: /models/q\noutput_dir: runs/sft\n# x\nlist: ['a/b']\n")
    command = [sys.executable, "-c", "import time; time.sleep(600)", "--config", str(settings)]
    child = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
    try:
        (found,) = [one for one in SystemProcesses().all() if one.id.pid == child.pid]
        assert {"/models/q", "runs/sft", "a/b"} <= set(found.settings)
        assert (found.folder, found.outputs) == (str(tmp_path), found.outputs)
    finally:
        child.kill()
        child.wait()


def test_a_process_that_is_dead_and_that_its_parent_keeps_is_left_out(tmp_path: Path) -> None:
    with sleeping(tmp_path) as child:
        processes = SystemProcesses()
        (found,) = [one for one in processes.all() if one.id.pid == child.pid]
        assert found.network == str(Path("/proc/self/ns/net").readlink())
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert found not in processes.all()
        assert processes.samples([found.id])[found.id].state is ProcessState.ZOMBIE
        assert processes.ended([found.id]) == {found.id}


def test_ends_are_noticed_of_many_more_processes_than_are_waited_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracker.adapters.processes.ends.MOST", 4)
    ends = ExitWatch()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(4):
        children = [subprocess.Popen(["sleep", "600"]) for _ in range(3)]
        ids = [ProcessId(pid=child.pid, created_s=created_s(child.pid)) for child in children]
        assert ends.of(ids) == {}
        for child in children:
            child.kill()
            child.wait()
        while len(ends.of(ids)) < len(ids):
            time.sleep(0.01)
    assert ends.of([]) == {}
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_process_that_cannot_be_read_has_not_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As while this process has no descriptor left."""
    with sleeping(tmp_path) as child:
        processes, one = SystemProcesses(), ProcessId(pid=child.pid, created_s=created_s(child.pid))
        monkeypatch.setattr("eval_jobs.host.proc.process_file", lambda *_: "")
        assert processes.ended([one]) == frozenset()
        assert processes.samples([one])[one].state is ProcessState.UNKNOWN
    assert processes.ended([one]) == {one}


def test_a_process_whose_settings_file_hangs_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[tuple[str, ...] | None] = [None, ("/data/sft",)]
    processes = SystemProcesses()
    monkeypatch.setattr(processes.settings, "paths", lambda *_: answers[0])
    with sleeping(tmp_path) as child:
        for expected in ((), ("/data/sft",)):
            (found,) = [one for one in processes.all() if one.id.pid == child.pid]
            assert found.settings == expected
            answers[0] = answers[-1]


def test_without_proc_nothing_is_known_and_nothing_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    none = tmp_path / "none"
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(none))
    monkeypatch.setattr("eval_jobs.host.proc._PROC", none)
    monkeypatch.setattr("tracker.adapters.processes.system.ROOT", none)
    processes, one = SystemProcesses(), ProcessId(pid=1, created_s=1.0)
    assert processes.all() == ()
    assert processes.samples([one])[one].state is ProcessState.GONE
    assert processes.exits([one]) == {}
    assert processes.memory_kills([one]) == 0
    used = SystemMachine(root=none, kernel=KernelLog(path=none)).usage([one])
    assert used == Usage()
