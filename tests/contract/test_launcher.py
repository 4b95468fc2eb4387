"""What every `Launcher` does, on the only one there is: real processes, killed from outside."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from eval_jobs.errors import TrackerError
from eval_jobs.execute.launch import local
from eval_jobs.execute.launch.local import MAX_QUICK_DEATHS, LocalWorkers
from tests.alertmanagers import eventually


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[LocalWorkers]:
    started = LocalWorkers(1, f"sqlite:///{tmp_path}/tracker.db", tmp_path / "work")
    yield started
    started.stop()


def pids(workers: LocalWorkers) -> tuple[int, ...]:
    return tuple(worker.process.pid for worker in workers._workers)


def kill(workers: LocalWorkers) -> int:
    """Kill the worker, wait until it is dead and return its process id."""
    (pid,) = pids(workers)
    os.kill(pid, signal.SIGKILL)
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)
    return pid


def is_replaced(pid: int, workers: LocalWorkers) -> bool:
    """Check once; a process that was killed is over only when the last of its threads is."""
    workers.check()
    return pid not in pids(workers)


def test_the_first_check_starts_workers_a_later_one_replaces_the_dead_and_none_outlives_a_stop(
    workers: LocalWorkers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    workers.nudge()
    assert pids(workers) == ()
    workers.check()
    workers.check()
    (first,) = pids(workers)
    own_log = tmp_path / "work" / f"worker-{first}.log"
    eventually(own_log.exists)
    kill(workers)
    eventually(lambda: is_replaced(first, workers))
    assert "SIGKILL" in caplog.text
    assert str(own_log) in caplog.text
    (second,) = pids(workers)
    assert second != first
    workers.stop()
    workers.stop()
    assert not psutil.pid_exists(second)
    assert len(pids(workers)) == 0
    workers.nudge()


def test_workers_that_never_lived_end_the_watch(workers: LocalWorkers, monkeypatch: pytest.MonkeyPatch) -> None:
    workers.check()
    monkeypatch.setattr(local, "QUICK_DEATH_S", 3600.0)
    for _ in range(MAX_QUICK_DEATHS - 1):
        kill(workers)
        workers.check()
    kill(workers)
    with pytest.raises(TrackerError, match="exited 5 times"):
        workers.check()


def test_workers_that_lived_before_are_started_again_after_a_rest_and_the_watch_goes_on(
    workers: LocalWorkers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(local, "QUICK_DEATH_S", 0.0)
    workers.check()
    workers.check()  # it has lived for longer than that
    monkeypatch.setattr(local, "QUICK_DEATH_S", 3600.0)
    monkeypatch.setattr(local, "REST_S", 3600.0)
    for _ in range(MAX_QUICK_DEATHS):
        dead = kill(workers)
        workers.check()
    workers.check()
    assert pids(workers) == (dead,)
    assert caplog.text.count("starting the next one in") == 1
    monkeypatch.setattr(local, "REST_S", 0.0)
    workers.check()
    assert pids(workers) != (dead,)
