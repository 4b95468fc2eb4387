"""Each process of a real vLLM is killed while it answers: the plan is tried again, and ends as if nothing had been."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from eval_jobs.evaluate.data.files import read_data_digest
from eval_jobs.execute.worker.interrupts import Interrupts
from eval_jobs.execute.worker.main import Worker, carry_out, make_tools
from eval_jobs.host import proc
from eval_jobs.host.clock import SystemClock
from eval_jobs.identity import make_plan
from eval_jobs.queue.database_sql import open_database
from eval_jobs.queue.sql_queue import SqlQueue
from eval_jobs.types import Benchmark, EvalPlan, EvalResult, Generation, SampleStatus, ServeSpec, Suite
from tests.integration.left_behind import record_of, writers
from tests.tiny_model import checkpoint_record, write_checkpoint

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]
"""Four starts, of 20 s each where nothing else runs."""

SAMPLES = 600
ANSWERED_BEFORE_A_KILL = 25
VICTIMS = ("API server", "engine core", "worker")
MAX_PAUSE_S = 0.3
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - looked at, not written


class HastyClock(SystemClock):
    """Waits between two tries of a plan are short."""

    def sleep(self, seconds: float) -> None:
        super().sleep(min(seconds, MAX_PAUSE_S))


class Killer:
    """Kills one process of the engine at each of the first attempts, as soon as some samples are answered."""

    def __init__(self, work_dir: Path) -> None:
        self.work_dir = work_dir
        self.killed: list[str] = []
        self.tmp_dirs: set[str] = set()
        self.logs: set[str] = set()
        self.answered = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Killer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.02) and len(self.killed) < len(VICTIMS):
            if self._lines() >= self.answered + ANSWERED_BEFORE_A_KILL:
                record = record_of(self.work_dir)
                self.tmp_dirs.add(record.tmp_dir)
                self.logs.add(record.log)
                self._kill(psutil.Process(record.pid), VICTIMS[len(self.killed)])
                while writers(record.log) and not self._over.wait(0.02):  # what is left of it is being stopped
                    pass
                self.answered = self._lines()

    def _kill(self, server: psutil.Process, victim: str) -> None:
        for _ in range(VICTIMS.index(victim)):
            (server,) = [child for child in server.children() if not proc.is_resource_tracker(child.pid)]
        server.kill()
        self.killed.append(victim)

    def _lines(self) -> int:
        files = self.work_dir.glob("runs/*/*/predictions/*/*.jsonl")
        return sum(path.read_bytes().count(b"\n") for path in files)


@pytest.fixture
def decoys() -> Iterator[list[psutil.Process]]:
    """Processes that are called like vLLM's and are none of ours."""
    names = ("VLLM::EngineCore", "VLLM::Worker", "eval_jobs.evaluate.evalscope.child.main")
    started = [subprocess.Popen([name, "1000"], executable="/bin/sleep") for name in names]
    yield [psutil.Process(process.pid) for process in started]
    for process in started:
        process.kill()
        process.wait()


def plan_of(folder: Path) -> EvalPlan:
    data = folder / "questions.jsonl"
    rows = [{"question": f"{n}+1=", "answer": str(n + 1)} for n in range(SAMPLES)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    benchmark = Benchmark(name="sums", adapter="exact", data=str(data), data_digest=read_data_digest(data))
    suite = Suite(name="s", benchmarks=(benchmark,), generation=Generation(max_tokens=16), concurrency=4)
    checkpoint = checkpoint_record(write_checkpoint(folder / "checkpoint"))
    return make_plan(checkpoint, suite, ServeSpec(max_model_len=256), ())


def test_a_plan_outlives_every_process_of_its_engine(tmp_path: Path, decoys: list[psutil.Process]) -> None:
    before = shared_memory()
    queue = SqlQueue(open_database(f"sqlite:///{tmp_path}/tracker.db"))
    queue.add(plan_of(tmp_path), now=datetime.now(UTC))
    work_dir = tmp_path / "work"
    tools = make_tools(work_dir, HastyClock())
    worker = Worker(name="w", queue=queue, tools=tools, interrupts=Interrupts())
    with Killer(work_dir) as killer:
        for _ in range(len(VICTIMS) + 1):
            now = datetime.now(UTC)
            claim = queue.claim(worker="w", now=now, lease_until=now + timedelta(hours=1))
            assert claim is not None, [outcome for record in queue.finished() for outcome in record.outcomes]
            carry_out(claim, worker)
    tools.evaluator.close()
    tools.engine.close()

    assert killer.killed == list(VICTIMS)
    (record,) = queue.finished()
    (outcome,) = record.outcomes
    assert isinstance(outcome, EvalResult), outcome
    assert len(outcome.samples) == SAMPLES
    assert {sample.status for sample in outcome.samples} <= {SampleStatus.SCORED, SampleStatus.TRUNCATED}
    assert writers(*work_dir.glob("engines/*.log"), *work_dir.glob("logs/*.log")) == []
    assert not any(Path(folder).exists() for folder in killer.tmp_dirs)
    assert not list(work_dir.glob("engines/*.pid"))
    for _ in range(1200):  # what others have there now goes in the end, what is left behind stays
        if not shared_memory() - before:
            break
        tools.clock.sleep(0.1)
    assert shared_memory() - before == set()
    assert all(decoy.is_running() for decoy in decoys)


# --- private


def shared_memory() -> set[str]:
    """Return the files in shared memory that no process uses any more."""
    used = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):
            used |= {Path(line.split()[-1]).name for line in maps.read_text().splitlines() if "/dev/shm/" in line}  # noqa: S108
    return {entry.name for entry in os.scandir(SHARED_MEMORY)} - used
