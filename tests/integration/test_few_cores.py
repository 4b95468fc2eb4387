"""An engine and its clients on two cores: who is put where, as real processes see it."""

import json
import os
import subprocess
import sys
import threading
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from eval_jobs.evaluate.evalscope.evaluator import EvalScopeEvaluator
from eval_jobs.host.cpu_placement import bound_cores
from tests.evaluating import AT_ONCE, child_pid, endpoint_of, evaluate_one, right, suite_of, sums
from tests.fakes.openai_server import OpenAIServer
from tests.requires import PROJECT

FAMILY = """
import json, os, subprocess, sys, time
from eval_jobs.host.cpu_placement import share_cores

two = sorted(os.sched_getaffinity(0))[:2]
os.sched_setaffinity(0, two)
wait = "import sys, threading; threading.Thread(target=sys.stdin.read).start(); print(0, flush=True); sys.stdin.read()"
worker = f"import os; os.sched_setaffinity(0, [{two[0]}]); {wait}"
scheduler = f"import os, subprocess, sys; w = subprocess.Popen([sys.executable, '-S', '-c', {worker!r}], stdout=-1)\\n"
scheduler += "w.stdout.readline(); print(w.pid, flush=True); sys.stdin.read()"
start = lambda code: subprocess.Popen([sys.executable, "-S", "-c", code], stdin=-1, stdout=-1, text=True)
with start(wait) as server, start(scheduler) as scheduler:
    server.stdout.readline()
    pids = [server.pid, scheduler.pid, int(scheduler.stdout.readline())]
    left = share_cores(pids)
    used = [[sorted(os.sched_getaffinity(int(t))) for t in os.listdir(f"/proc/{pid}/task")] for pid in pids]
    print(json.dumps({"two": two, "left": left, "used": used, "own": sorted(os.sched_getaffinity(0))}))
    scheduler.kill()
    server.kill()
"""

ALL_CORES = frozenset(os.sched_getaffinity(0))

needs_two_cores = pytest.mark.skipif(len(ALL_CORES) < 2, reason="this machine lets us use one core")


def masks(pid: int) -> set[frozenset[int]]:
    """What every thread of a process may use; a thread of a pool may end meanwhile."""
    found = set()
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):
            found.add(frozenset(os.sched_getaffinity(int(thread.name))))
    return found


@needs_two_cores
def test_threads_that_have_a_core_each_are_all_seen() -> None:
    """OpenMP binds each of its threads to one core, the main one too."""
    barrier, over = threading.Barrier(3), threading.Event()

    def compute(core: int) -> None:
        os.sched_setaffinity(0, [core])
        barrier.wait()
        over.wait()

    two = sorted(ALL_CORES)[:2]
    threads = [threading.Thread(target=compute, args=(core,)) for core in two]
    for thread in threads:
        thread.start()
    barrier.wait()
    try:
        assert bound_cores(os.getpid(), ALL_CORES) == frozenset(two)
    finally:
        over.set()
        for thread in threads:
            thread.join()


@needs_two_cores
def test_every_thread_of_the_server_leaves_the_core_of_the_worker_and_the_scheduler_stays_there() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAMILY], cwd=PROJECT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    first, second = found["two"]
    server, scheduler, worker = found["used"]
    assert found["left"] == [second]
    assert len(server) > 1
    assert all(cores == [second] for cores in server)
    assert scheduler == [[first]]
    assert all(cores == [first] for cores in worker)
    assert found["own"] == [first, second], "whoever starts engines may use all cores"


@needs_two_cores
def test_the_evaluator_goes_where_it_is_put_and_comes_back(tmp_path: Path) -> None:
    some_core = sorted(ALL_CORES)[:1]
    with (
        OpenAIServer(right) as server,
        closing(EvalScopeEvaluator(tmp_path / "work", retry_policy=AT_ONCE)) as evaluator,
    ):
        suite, endpoint = suite_of(sums(tmp_path, 3)), endpoint_of(server)
        beside = replace(endpoint, client_cores=tuple(some_core), client_niceness=7)
        evaluate_one(evaluator, suite, beside, plan_id="beside an engine on few cores")
        child = psutil.Process(child_pid(evaluator))
        assert masks(child.pid) == {frozenset(some_core)}
        assert child.nice() == max(7, psutil.Process().nice())
        evaluate_one(evaluator, suite, endpoint, plan_id="elsewhere")
        assert psutil.Process(child_pid(evaluator)) == child
        assert masks(child.pid) == {ALL_CORES}
