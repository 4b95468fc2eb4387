"""A process of a real vLLM is killed while it answers, with others around that are called like it."""

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from eval_jobs.evaluate.data.files import read_data_digest
from eval_jobs.execute.interrupts import Interrupts
from eval_jobs.execute.worker.claiming import ClaimFilter
from eval_jobs.execute.worker.execution_window import ExecutionWindow
from eval_jobs.execute.worker.main import Worker, carry_out, make_tools
from eval_jobs.host import proc
from eval_jobs.identity import make_plan
from eval_jobs.queue.database_sql import open_database
from eval_jobs.queue.sql_queue import SqlQueue
from eval_jobs.types import Benchmark, Checkpoint, EvalPlan, Generation, Suite
from tests.vllm_series import SPEC, Series

SAMPLES = 600
ANSWERED_BEFORE_A_KILL = 25
VICTIMS = ("API server", "engine core", "worker")
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - looked at, not written


def a_plan_whose_engine_is_killed(series: Series, checkpoint: Checkpoint, victim: str, folder: Path) -> SqlQueue:
    """Have a worker carry out a plan on an engine that runs, whose `victim` dies meanwhile; return the queue."""
    queue = SqlQueue(open_database(f"sqlite:///{folder}/tracker.db"))
    now = datetime.now(UTC)
    queue.add(_plan(checkpoint, folder), now=now)
    tools = replace(make_tools(folder / "work"), engine=series.engine)
    claim = queue.claim(worker="w", now=now, lease_until=now + timedelta(hours=1))
    assert claim is not None
    leader = psutil.Process(series.resident.process.pid)
    killer = threading.Thread(target=_kill_in_the_middle, args=(leader, victim, folder / "work"))
    killer.start()
    claim_filter = ClaimFilter(window=ExecutionWindow(tools.clock))
    carry_out(claim, Worker(name="w", queue=queue, tools=tools, interrupts=Interrupts(), claim_filter=claim_filter))
    killer.join()
    tools.evaluator.close()
    series.engine.close()
    return queue


@pytest.fixture
def decoys() -> Iterator[list[psutil.Process]]:
    """Processes that are called like vLLM's and are none of ours."""
    names = ("VLLM::EngineCore", "VLLM::Worker", "eval_jobs.evaluate.evalscope.child.main")
    started = [subprocess.Popen([name, "1000"], executable="/bin/sleep") for name in names]
    yield [psutil.Process(process.pid) for process in started]
    for process in started:
        process.kill()
        process.wait()


def shared_memory() -> set[str]:
    """Return the files in shared memory that no process uses any more."""
    used = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):
            used |= {Path(line.split()[-1]).name for line in maps.read_text().splitlines() if "/dev/shm/" in line}  # noqa: S108
    return {entry.name for entry in os.scandir(SHARED_MEMORY)} - used


# --- private


def _plan(checkpoint: Checkpoint, folder: Path) -> EvalPlan:
    data = folder / "questions.jsonl"
    rows = [{"question": f"{n}+1=", "answer": str(n + 1)} for n in range(SAMPLES)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    benchmark = Benchmark(name="sums", adapter="exact", data=str(data), data_digest=read_data_digest(data))
    suite = Suite(name="s", benchmarks=(benchmark,), generation=Generation(max_tokens=16), concurrency=4)
    return make_plan(checkpoint, suite, SPEC, ())


def _kill_in_the_middle(server: psutil.Process, victim: str, work_dir: Path) -> None:
    pause = threading.Event()
    while _answered(work_dir) < ANSWERED_BEFORE_A_KILL:
        pause.wait(0.02)
    for _ in range(VICTIMS.index(victim)):
        (server,) = [child for child in server.children() if not proc.is_resource_tracker(child.pid)]
    server.kill()


def _answered(work_dir: Path) -> int:
    files = work_dir.glob("runs/*/*/predictions/*/*.jsonl")
    return sum(path.read_bytes().count(b"\n") for path in files)
