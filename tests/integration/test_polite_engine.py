"""An engine's processes stand back on the CPU, and how much of it they used is told."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from eval_jobs.host import proc
from eval_jobs.host.clock import SystemClock
from eval_jobs.serve.process import lifecycle as process
from eval_jobs.serve.resident.vllm import VllmEngine
from eval_jobs.types import ServeSpec
from tests.contract.engine_rules import nothing_to_show
from tests.fakes.vllm_stand_in import write_interpreter
from tests.tiny_model import checkpoint_record, write_checkpoint

CHILD = (
    "import os, subprocess, sys; subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE); input()"
)
BUSY = "import time\nwhile time.process_time() < 0.5: pass\nprint('done', flush=True)\ntime.sleep(600)"
BUSY_CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"

Start = Callable[..., process.EngineProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[process.EngineProcess] = []

    def begin(code: str, *, niceness: int = 0) -> process.EngineProcess:
        argv = [sys.executable, "-S", "-c", code]
        engine = process.start(
            argv, os.environ, folder=tmp_path, name=f"e{len(started)}", clock=SystemClock(), niceness=niceness
        )
        started.append(engine)
        return engine

    yield begin
    for engine in started:
        engine.stop(1.0)


def members(engine: process.EngineProcess) -> list[psutil.Process]:
    return [psutil.Process(one.pid) for one in proc.every_process() if proc.writes_to(one.pid, engine.log)]


def eventually(condition: Callable[[], bool]) -> None:
    for _ in range(2400):
        if condition():
            return
        threading.Event().wait(0.05)
    raise AssertionError("it never became true")


def test_a_nice_engine_is_nice_with_all_its_processes(tmp_path: Path) -> None:
    engine = VllmEngine(tmp_path / "work", SystemClock())
    spec = ServeSpec(python=str(write_interpreter(tmp_path)), args=("--stand-in", "family"), niceness=18)
    checkpoint = checkpoint_record(write_checkpoint(tmp_path / "checkpoint"), step=100)
    try:
        with engine.serving(checkpoint, spec, progress=nothing_to_show) as endpoint:
            log = Path(endpoint.info.log)
            family = [psutil.Process(one.pid) for one in proc.every_process() if proc.writes_to(one.pid, log)]
            assert len(family) == 2
            assert [one.nice() for one in family] == [18, 18]
    finally:
        engine.close()
    assert psutil.Process().nice() < 18, "the worker itself stays as it is"


def test_an_engine_is_as_nice_as_its_worker_when_nothing_is_set(start: Start) -> None:
    engine = start("import time; time.sleep(600)")
    assert {one.nice() for one in members(engine)} == {psutil.Process().nice()}


def test_where_linux_shares_the_cpu_by_sessions_the_session_is_nice_too(start: Start) -> None:
    engine = start("import time; time.sleep(600)", niceness=18)
    (leader,) = members(engine)
    autogroup = Path(f"/proc/{leader.pid}/autogroup")
    if autogroup.exists():
        assert "nice 18" in autogroup.read_text()
    assert leader.nice() == 18


def test_the_cpu_time_of_an_engine_is_that_of_its_whole_family_and_stays_known_after_its_end(start: Start) -> None:
    engine = start(BUSY_CHILD)
    eventually(lambda: "done" in engine.log.read_text())
    used_s = engine.used_cpu_s()
    assert used_s >= 0.45, "a child used half a second"
    engine.stop(1.0)
    assert engine.used_cpu_s() >= used_s


def test_an_engine_tells_the_cpu_time_of_all_its_starts(tmp_path: Path) -> None:
    engine = VllmEngine(tmp_path / "work", SystemClock())
    spec = ServeSpec(python=str(write_interpreter(tmp_path)))
    checkpoint = checkpoint_record(write_checkpoint(tmp_path / "checkpoint"), step=100)
    told = [engine.used_cpu_s()]
    for _ in range(2):
        with engine.serving(checkpoint, spec, progress=nothing_to_show):
            told.append(engine.used_cpu_s())
        engine.close()
        told.append(engine.used_cpu_s())
    assert told[0] == 0
    known = [used_s for used_s in told if used_s is not None]
    assert len(known) == len(told)
    assert known == sorted(known)
    assert known[-1] > known[1] > 0
