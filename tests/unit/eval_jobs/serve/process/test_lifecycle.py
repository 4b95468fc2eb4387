"""An engine's start that is killed at any change to the disk leaves nothing after the next look."""

import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil
import pytest

from eval_jobs.host import proc
from eval_jobs.host.clock import SystemClock
from eval_jobs.serve.process.lifecycle import reap, start
from tests.deep import moments_to_kill
from tests.integration.left_behind import record_of

CLOCK = SystemClock()
CHANGES = {"open", "os.mkdir", "os.rename", "subprocess.Popen"}
FEWEST_CHANGES = 5


def start_and_be_killed(root: Path, kill_at: int) -> int:
    """Start an engine in a process that is killed at its `kill_at`-th change; return its exit status."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    count = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if event in CHANGES and (event == "subprocess.Popen" or str(arguments[0]).startswith(str(root))):
            count += 1
            if count == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    tempfile.tempdir = str(root / "tmp")
    sys.addaudithook(hook)
    try:
        start(["/bin/sleep", "1000"], {}, folder=root / "engines", name="step1", clock=CLOCK)
    finally:
        os._exit(0)


@pytest.mark.slow
def test_a_start_that_is_killed_at_any_change_leaves_nothing_behind(tmp_path: Path) -> None:
    for kill_at in moments_to_kill():
        root = tmp_path / str(kill_at)
        (root / "tmp").mkdir(parents=True)
        (root / "engines").mkdir()
        status = start_and_be_killed(root, kill_at)
        reap(root / "engines", CLOCK)
        assert [path.name for path in (root / "engines").iterdir() if path.suffix != ".log"] == [], kill_at
        assert [*(root / "tmp").iterdir()] == [], kill_at
        log = root / "engines" / "step1.log"
        assert [p.pid for p in proc.every_process() if p.alive and proc.writes_to(p.pid, log)] == [], kill_at
        if status == 0:
            break
    assert kill_at > FEWEST_CHANGES


ENDS_THREAD_BY_THREAD = """
import ctypes, os, threading, time
threading.Thread(target=lambda: (time.sleep(0.5), os._exit(0))).start()
ctypes.CDLL(None).syscall({"x86_64": 60}.get(os.uname().machine, 93), 0)  # exit, of this thread only
"""


def test_a_stopped_engine_leaves_no_zombie_whose_other_threads_end_later(tmp_path: Path) -> None:
    argv = [sys.executable, "-S", "-c", ENDS_THREAD_BY_THREAD]
    engine = start(argv, os.environ, folder=tmp_path / "engines", name="step1", clock=CLOCK)
    pid = record_of(tmp_path).pid
    while (found := proc.stat(pid)) is not None and found.alive:
        CLOCK.sleep(0.01)
    engine.stop()
    assert not psutil.pid_exists(pid)


def test_a_draft_of_a_living_process_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    engine = start(["/bin/sleep", "1000"], {}, folder=tmp_path / "engines", name="step1", clock=CLOCK)
    try:
        own = proc.stat(os.getpid())
        assert own is not None
        start_and_be_killed(tmp_path, 3)  # a draft of a dead process, whose name is changed to ours
        (left,) = (tmp_path / "engines").glob("*.pid-draft")
        machine = left.name.split(".")[1].partition("-")[0]
        ours = left.with_name(f"step1.{machine}-{own.pid}-{own.start_time}.pid-draft")
        left.rename(ours)
        reap(tmp_path / "engines", CLOCK)
        assert ours.exists()
    finally:
        engine.stop()
