"""What a killed worker leaves behind is ended at the next start, and nothing else is."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from eval_jobs.execute.worker.main import make_tools
from eval_jobs.execute.worker.orphans import evaluator_log_name, reap_orphans
from eval_jobs.host.clock import SystemClock
from tests.alertmanagers import eventually
from tests.fakes.vllm_stand_in import write_interpreter
from tests.integration.left_behind import writers
from tests.requires import PROJECT
from tests.tiny_model import write_checkpoint

CLOCK = SystemClock()
PATIENCE_S = 60

PARENT = """
import sys
from pathlib import Path
from eval_jobs.evaluate.evalscope.evaluator import EvalScopeEvaluator
from eval_jobs.execute.worker.orphans import evaluator_log_name
from tests.evaluating import *
from tests.fakes.openai_server import Fault

work_dir = Path(sys.argv[1])
evaluator = EvalScopeEvaluator(work_dir, log_name=evaluator_log_name())

def hang(request):
    print("asked", child_pid(evaluator), flush=True)
    return Reply(fault=Fault.HANG)

with OpenAIServer(hang) as server:
    ask(evaluator, server, sums(work_dir, 1), plan_id="p")
"""


@pytest.fixture
def sleepers() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def sleeper_writing_to(log: Path, sleepers: list[subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """Start a process whose errors go to `log`, and which calls itself an evaluator."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as errors:
        process = subprocess.Popen(
            ["eval_jobs.evaluate.evalscope.child.main", "1000"], executable="/bin/sleep", stderr=errors
        )
    sleepers.append(process)
    return process


def gone_owner(name: str) -> str:
    """Return the log's name for an owner of the same machine that does not live any more."""
    _, pid, start_time, machine = name.removesuffix(".log").split("-")
    return f"evaluator-{pid}-{int(start_time) - 1}-{machine}.log"


def test_an_evaluator_that_does_not_notice_the_death_of_its_worker_is_ended_at_the_next_start(tmp_path: Path) -> None:
    """Stopped, it cannot see its pipe close: so is one that is caught in a library that never lets go."""
    command = [sys.executable, "-c", PARENT, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=PROJECT, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline().split()[1]))
        child.suspend()
        eventually(lambda: child.status() == psutil.STATUS_STOPPED)  # it must be on a core to see the signal
        parent.kill()
    assert reap_orphans(tmp_path / "elsewhere") == ()
    (name,) = reap_orphans(tmp_path)
    assert name.startswith(f"evaluator-{parent.pid}-")
    gone, alive = psutil.wait_procs([child], timeout=PATIENCE_S)
    assert (len(gone), alive) == (1, [])
    assert reap_orphans(tmp_path) == ()


def test_only_what_writes_to_the_log_of_a_dead_owner_is_ended(
    tmp_path: Path, sleepers: list[subprocess.Popen[bytes]]
) -> None:
    logs, own = tmp_path / "logs", evaluator_log_name()
    orphan = sleeper_writing_to(logs / gone_owner(own), sleepers)
    elsewhere = gone_owner(own).rpartition("-")[0] + "-00000000.log"
    others = [
        sleeper_writing_to(path, sleepers)
        for path in (
            logs / own,  # its owner lives
            logs / elsewhere,  # its owner is on another machine
            logs / f"evaluator-{os.getpid()}.log",  # says too little about its owner
            logs / "mine.log",
            tmp_path / "other" / "logs" / gone_owner(own),  # another project's
        )
    ]
    assert reap_orphans(tmp_path) == (gone_owner(own),)
    assert orphan.wait(PATIENCE_S) == -signal.SIGKILL
    assert [other.poll() for other in others] == [None] * len(others)


def test_without_a_process_list_no_process_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eval_jobs.host.proc._PROC", tmp_path / "no-proc")
    assert reap_orphans(tmp_path) == ()
    assert evaluator_log_name() == f"evaluator-{os.getpid()}.log"


def test_what_a_killed_evaluation_leaves_is_ended_by_the_next_one_and_not_by_a_reader(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "out" / "checkpoint-100")
    (tmp_path / "sums.jsonl").write_text('{"question": "1+1=", "answer": "2"}\n')
    python = write_interpreter(tmp_path)
    (tmp_path / "tracker.toml").write_text(
        f'[run]\nname = "r"\noutput_dir = "out"\n[tracking]\nenabled = false\n'
        f'[serve]\npython = "{python}"\nargs = ["--stand-in", "hang"]\n'
        f'[[benchmark]]\nbenchmark = "exact"\nname = "sums"\ndata = "sums.jsonl"\n'
    )
    tracker = shutil.which("tracker", path=str(Path(sys.executable).parent))
    assert tracker is not None
    with subprocess.Popen([tracker, "evaluate", str(checkpoint)], cwd=tmp_path, stdout=subprocess.DEVNULL) as running:
        logs: list[Path] = []
        while not writers(*logs):
            assert running.poll() is None
            logs = list(tmp_path.rglob("engines/*.log"))
            CLOCK.sleep(0.05)
        running.kill()
    left = writers(*logs)
    assert left
    subprocess.run([tracker, "history"], cwd=tmp_path, check=True)
    assert writers(*logs) == left
    evaluators = [*tmp_path.rglob("evaluator-*.log")]  # one that noticed the death has ended by itself
    make_tools(tmp_path / ".tracker" / "work")
    assert writers(*logs) == []
    eventually(lambda: writers(*evaluators) == [])  # a killed process ends when it gets on a core
    assert not list(tmp_path.rglob("engines/*.pid"))
