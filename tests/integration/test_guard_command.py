"""`tracker guard` around real commands: their output, exit codes, signals, orphans, and what is remembered."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event

import psutil
import pytest

from eval_jobs.errors import ExitCode
from eval_jobs.host import proc
from eval_jobs.host.clock import SystemClock
from tests.commands import RunningTracker, write_project
from tracker.adapters.guarded_command import guarded_runs
from tracker.config import load_config
from tracker.domain.health.guarded import GuardedRun, ending_text
from tracker.wiring.agent import follower_of
from tracker.wiring.project import Project

MIXED = """
import sys
for number in range(200):
    print(number, file=(sys.stdout, sys.stderr)[number % 2])
"""
ANSWERING = """
trap "echo got INT" INT; trap "echo got USR1" USR1; trap "echo got USR2" USR2; trap "echo got HUP" HUP
echo ready; while :; do sleep 0.02; done
"""
ORPHAN = "setsid sleep 1000 & echo $! >pid"
"""A process in a session of its own, as torchrun starts each rank."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write_project(tmp_path, "http://127.0.0.1:9/v1", rows=1)
    (tmp_path / "text").write_text("no program")
    (tmp_path / "text").chmod(0o755)
    return tmp_path


@contextmanager
def guarding(project: Path, *words: str, grace_s: float = 30.0) -> Iterator[RunningTracker]:
    name = f"said-{len(list(project.glob('said-*')))}"
    options = ("--no-check", "--grace-s", str(grace_s))
    guard = RunningTracker(project, "guard", *options, "--", *words, output=project / name)
    try:
        yield guard
    finally:
        for process in below(guard):
            process.kill()
        guard.kill_all()


def below(guard: RunningTracker) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(guard.pid).children(recursive=True)
    return []


def remembered(project: Path) -> tuple[GuardedRun, ...]:
    return guarded_runs(project / ".tracker" / "guard" / "r")


def orphan_runs(project: Path) -> bool:
    found = proc.stat(int((project / "pid").read_text()))
    return found is not None and found.alive


def test_the_exit_code_is_that_of_the_command_and_its_ending_is_remembered(project: Path) -> None:
    cases = {
        "exit 0": (0, "", "finished"),
        "echo $TRACKER_RUN; exit 3": (3, "r\n", "failed with exit code 3"),
        "echo >&2 trouble; kill -SEGV $$": (139, "trouble\n", "was ended by SIGSEGV"),
        "setsid sh -c 'sleep 0.3; echo from the background' & exit 0": (0, "from the background\n", "finished"),
    }
    for command, (code, said, ending) in cases.items():
        with guarding(project, "sh", "-c", command) as guard:
            assert guard.wait() == code
        found = remembered(project)[-1]
        assert (found.command, found.run) == (("sh", "-c", command), "r")
        assert ending_text(found) == ending
        assert Path(found.log).read_text() == said
        assert guard.said().startswith(said)
        assert (f"sh {ending}; its output is in {found.log}" in guard.said()) == bool(code)
        assert found.ended_at is not None
        assert found.ended_at >= found.started_at


def test_what_cannot_be_run_is_an_error_and_leaves_nothing(project: Path) -> None:
    cases = {
        "nowhere": (127, "error E-GUARD-NOT-FOUND: nowhere: no such program\n  hint: check its name and PATH\n"),
        "./tracker.toml": (126, "error E-GUARD-NOT-EXECUTABLE: cannot run ./tracker.toml: Permission denied\n"),
        "./text": (126, "error E-GUARD-NOT-EXECUTABLE: cannot run ./text: Exec format error\n"),
        ".": (126, "error E-GUARD-NOT-EXECUTABLE: cannot run .: Permission denied\n"),
    }
    for program, (code, said) in cases.items():
        with guarding(project, program, "--lr", "1") as guard:
            assert guard.wait() == code
        assert said in re.sub(r"(?m)^\S+Z ", "", guard.said())
    assert list((project / ".tracker" / "guard" / "r").iterdir()) == []


def test_a_training_that_would_stop_on_this_machine_is_not_started(project: Path) -> None:
    words = ("--", "touch", "started")
    environment = os.environ | {"NCCL_SOCKET_IFNAME": "none0"}
    for option, code in ((), ExitCode.NOT_STARTED), (("--no-check",), ExitCode.OK):
        output = project / f"said-{code}"
        guard = RunningTracker(project, "guard", *option, *words, output=output, environment=environment)
        assert guard.wait() == code
        assert (project / "started").exists() == bool(option)
    said = " ".join((project / f"said-{ExitCode.NOT_STARTED}").read_text().split())
    assert "NCCL_SOCKET_IFNAME=none0 selects none of" in said
    assert said.endswith("not started; hint: correct the errors above, or pass --no-check")


def test_what_is_not_started_has_no_exit_code_that_a_command_has(project: Path) -> None:
    (project / "wrong.toml").write_text("[run]\nname = 3\n")
    words = ("--", "touch", "started")
    cases = (
        (("--config", "gone.toml", *words), "error E-CONFIG: "),
        (("--config", "wrong.toml", *words), "error E-CONFIG: "),
        (("--grace-s", "-1", *words), "Invalid value for '--grace-s'"),
        (("--graces", *words), "No such option"),
        ((), "Missing argument"),
        (("--no-check", *words), "error E-STORE: "),
    )
    (project / ".tracker").write_text("no folder")
    for number, (arguments, said) in enumerate(cases):
        guard = RunningTracker(project, "guard", *arguments, output=project / f"said-{number}")
        assert guard.wait() == ExitCode.NOT_STARTED
        assert said in guard.said()
    assert not (project / "started").exists()


def test_an_argument_that_is_no_text_is_passed_on_and_remembered_as_far_as_it_is(project: Path) -> None:
    argument = os.fsdecode(b"a\xffb")
    with guarding(project, "sh", "-c", "printf %s $1 >argument; exit 3", "sh", argument) as guard:
        assert guard.wait() == 3
    assert (project / "argument").read_bytes() == b"a\xffb"
    (found,) = remembered(project)
    assert (found.command[-1], ending_text(found)) == ("a\ufffdb", "failed with exit code 3")
    assert Path(found.log).stem.split("-", 2)[2].startswith(socket.gethostname())


def test_output_and_errors_are_kept_and_shown_in_their_order(project: Path) -> None:
    with guarding(project, sys.executable, "-c", MIXED) as guard:
        assert guard.wait() == 0
    lines = "".join(f"{number}\n" for number in range(200))
    assert Path(remembered(project)[0].log).read_text() == lines
    assert guard.said() == lines


def test_signals_reach_the_command_and_only_a_second_request_to_stop_kills_it(project: Path) -> None:
    with guarding(project, "sh", "-c", ANSWERING, grace_s=0.0) as guard:
        guard.until_said("ready")
        for number in (signal.SIGUSR1, signal.SIGINT, signal.SIGUSR2):
            guard.send_signal(number)
            guard.until_said(f"got {number.name.removeprefix('SIG')}")
        assert guard.stop(signal.SIGHUP) == 128 + signal.SIGKILL
    assert ending_text(remembered(project)[0]) == "was ended by SIGKILL"


def test_a_command_that_ends_itself_after_sigterm_has_its_own_exit_code(project: Path) -> None:
    saving = f'trap "echo saving; exit 0" TERM; {ORPHAN}; echo ready; while :; do sleep 0.02; done'
    with guarding(project, "sh", "-c", saving) as guard:
        guard.until_said("ready")
        assert guard.stop(signal.SIGTERM) == 0
    assert "saving" in guard.said()
    assert not orphan_runs(project)


def test_a_command_that_ignores_sigterm_is_killed_with_all_that_it_started(project: Path) -> None:
    with guarding(project, "sh", "-c", f'trap "" TERM; {ORPHAN}; echo ready; sleep 1000', grace_s=0.2) as guard:
        guard.until_said("ready")
        assert guard.stop(signal.SIGTERM) == 128 + signal.SIGKILL
    assert not orphan_runs(project)


def test_what_a_failed_command_leaves_is_ended(project: Path) -> None:
    with guarding(project, "sh", "-c", f"{ORPHAN}; exit 9") as guard:
        assert guard.wait() == 9
    assert not orphan_runs(project)


def test_a_command_survives_its_guard_and_is_still_known(project: Path) -> None:
    with guarding(project, "sh", "-c", "echo ready; read go <go; echo more") as guard:
        os.mkfifo(project / "go")
        guard.until_said("ready")
        (command,) = below(guard)
        os.kill(guard.pid, signal.SIGKILL)
        guard.wait()
        (found,) = remembered(project)
        assert (found.pid, ending_text(found)) == (command.pid, "has not ended")
        assert found.machine == proc.this_machine()
        assert proc.is_running(found.pid, found.start_time)
        (project / "go").write_text("on\n")
        while proc.is_running(found.pid, found.start_time):
            Event().wait(0.01)
    assert Path(found.log).read_text() == "ready\nmore\n"


def test_a_reader_that_leaves_ends_nothing(project: Path) -> None:
    words = ("guard", "--no-check", "--", "sh", "-c", "seq 30000; exit 4")
    start = [sys.executable, "-c", "from tracker.cli.main import main; main()", *words]
    with subprocess.Popen(start, cwd=project, stdout=subprocess.PIPE) as guard:
        assert guard.stdout is not None
        guard.stdout.close()
        assert guard.wait() == 4
    assert Path(remembered(project)[0].log).read_text().endswith("29999\n30000\n")


def test_the_watcher_follows_the_output_without_a_setting(project: Path) -> None:
    lines = "step 7 | loss: 2.5\ntorch.OutOfMemoryError: CUDA out of memory\n"
    words = Project(load_config(project / "tracker.toml"))
    words.history  # noqa: B018 - makes the tables
    agent = follower_of(words.agent_settings(), words.database, SystemClock())
    agent.follow()  # what a log has before is history
    agent.log.close()
    with guarding(project, "printf", lines) as guard:
        assert guard.wait() == 0
    agent = follower_of(words.agent_settings(), words.database, SystemClock())
    while agent.follow():
        pass
    agent.log.close()
    (incident,) = words.history.training_incidents("r")
    assert (incident.cause.trouble.name, incident.last_step) == ("oom", 7)
    words.database.dispose()
