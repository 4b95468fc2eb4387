"""`tracker health` beside a real watcher and a real worker: at work, stopped, going on again, killed."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.commands import RunningTracker, run_tracker, tracker, write_project
from tests.json_output import result_of

PATIENCE_S = 120.0
STRICT = ("--within", "7")
"""Signs come every five seconds."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write_project(tmp_path, "http://127.0.0.1:9/v1", rows=1)
    return tmp_path


@contextmanager
def running(project: Path, *arguments: str) -> Iterator[RunningTracker]:
    process = RunningTracker(project, *arguments, output=project / "said")
    try:
        yield process
    finally:
        process.kill_all()


def asked(project: Path, kind: str, *options: str) -> tuple[int, str]:
    result = run_tracker(project, "health", kind, *options)
    return result.returncode, result.stdout + result.stderr


def until(code: int, project: Path, kind: str, *options: str) -> str:
    """Ask until the exit code is `code`; return what is said then."""
    waited = threading.Event()
    for _ in range(int(PATIENCE_S)):
        found, said = asked(project, kind, *options)
        if found == code:
            return said
        waited.wait(0.5)
    pytest.fail((project / "said").read_text())


def test_whoever_goes_on_is_healthy_and_whoever_is_stopped_or_killed_is_not(project: Path) -> None:
    with running(project, "watch", "--workers", "0") as watcher, running(project, "worker") as worker:
        both = {"watch": (watcher, "watching"), "worker": (worker, "waiting for plans")}
        for kind, (process, activity) in both.items():
            assert until(0, project, kind).startswith(f"{kind} {process.pid}: {activity} (")
            (life,) = result_of(tracker(project, "health", kind, "--json"))
            assert (life["pid"], life["activity"]) == (process.pid, activity)
            process.send_signal(signal.SIGSTOP)
        for kind, (process, _) in both.items():
            said = until(4, project, kind, *STRICT)
            assert f"E-HEALTH: no heartbeat from {kind} {process.pid} for " in said
            assert f"kill -9 {process.pid}" in said
            process.send_signal(signal.SIGCONT)
        for kind in both:
            until(0, project, kind, *STRICT)
    assert len([*(project / ".tracker/work/alive").iterdir()]) == 3  # they were killed, and the agent with its watcher
    for kind in both:
        of_run = " for run r" if kind == "watch" else ""
        said = tracker(project, "health", kind, code=4)
        assert f"no `tracker {kind}` is running{of_run} with the work folder " in said


def test_a_watcher_that_stands_by_is_healthy_too(project: Path) -> None:
    watch = ("watch", "--workers", "0")
    with running(project, *watch), running(project, *watch):
        lines: list[str] = []
        while len(lines) < 2:
            lines = until(0, project, "watch").splitlines()
        assert sorted(line.split(": ")[1].split(" (")[0] for line in lines) == ["standby", "watching"]


def test_the_watcher_of_another_run_in_the_same_folder_does_not_count(project: Path) -> None:
    settings = (project / "tracker.toml").read_text()
    (project / "other.toml").write_text(settings.replace('name = "r"', 'name = "other"'))
    alive = ("watch", "--workers", "0")
    with running(project, *alive), running(project, *alive, "--config", "other.toml") as other:
        for kind in ("watch", "agent"):
            until(0, project, kind, "--config", "other.toml")
            until(0, project, kind)
        (life,) = result_of(tracker(project, "health", "watch", "--config", "other.toml", "--json"))
        assert (life["pid"], life["run"]) == (other.pid, "other")
        other.kill_all()
        for kind in ("watch", "agent"):
            said = until(4, project, kind, "--config", "other.toml")
            assert f"no `tracker {kind}` is running for run other with the work folder " in said
        assert until(0, project, "watch", "--work-dir", ".tracker/work").startswith("watch ")


def test_a_check_leaves_everything_as_it_is(project: Path) -> None:
    tracker(project, "health", "worker", code=4)
    assert not (project / ".tracker").exists()
