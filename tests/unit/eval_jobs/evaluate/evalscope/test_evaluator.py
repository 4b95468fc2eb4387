"""The evaluator's client with a scripted child: what it believes, and who may use a plan's folder."""

import fcntl
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import pytest

from eval_jobs.errors import EvaluatorDied
from eval_jobs.evaluate.evalscope.evaluator import EvalScopeEvaluator
from eval_jobs.ports import ShowProgress
from eval_jobs.records.progress import Progress
from eval_jobs.types import Benchmark, Endpoint, EngineInfo, EvalResult, Suite
from tests.evaluating import child_pid, evaluate_one

BENCHMARK = Benchmark(name="b", adapter="gsm8k")
SUITE = Suite(name="s", benchmarks=(BENCHMARK,))
ENDPOINT = Endpoint(
    base_url="http://127.0.0.1:9/v1",
    model="m",
    api_key_env="",
    info=EngineInfo(name="vllm", version="1", load_method="cold", load_s=0.0, log=""),
)
CHILD = """\
import json, os, pathlib, sys

assert "-P" in sys.argv[: sys.argv.index("-m")]
print(json.dumps({{"type": "ready"}}), flush=True)
for line in sys.stdin:
    (task,) = json.loads(line)["tasks"]
    folder = pathlib.Path(task["task"]["work_dir"])
    folder.mkdir(parents=True, exist_ok=True)
    row = {{"subset": "main", "repeat": 0, "messages": [["user", "1+1="]], "target": "2"}}
    rows = [json.dumps(row | {{"index": index}}) + "\\n" for index in range({written})]
    (folder / "hub.txt").write_text(os.environ.get("HF_HUB_OFFLINE", "as it is"))
    (folder / "planned.jsonl").write_text("".join(rows))
    known = [json.dumps({{"subset": "main", "index": index, "detail": "refused"}}) + "\\n" for index in range({known})]
    (folder / "failures.jsonl").write_text("".join(known))
    said = {{"type": "result", "benchmark": task["benchmark"], "asking_s": 1.0, "metric": "acc", "planned": {planned}}}
    print(json.dumps(said), flush=True)
"""

Start = Callable[..., EvalScopeEvaluator]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[EvalScopeEvaluator] = []

    def start(*, written: int = 2, planned: int = 2, known: int | None = None) -> EvalScopeEvaluator:
        child = tmp_path / "child"
        text = CHILD.format(written=written, planned=planned, known=written if known is None else known)
        child.write_text(f"#!{sys.executable}\n{text}", encoding="utf-8")
        child.chmod(0o755)
        started.append(EvalScopeEvaluator(tmp_path / "work", python=str(child)))
        return started[-1]

    yield start
    for evaluator in started:
        evaluator.close()


def evaluate(
    evaluator: EvalScopeEvaluator, progress: ShowProgress = lambda _: None, benchmark: Benchmark = BENCHMARK
) -> EvalResult:
    return evaluate_one(evaluator, replace(SUITE, benchmarks=(benchmark,)), ENDPOINT, plan_id="plan", progress=progress)


@pytest.mark.parametrize(("written", "planned"), [(0, 2), (1, 2), (0, 0), (3, 2)])
def test_a_result_without_the_samples_that_were_planned_is_no_result(start: Start, written: int, planned: int) -> None:
    with pytest.raises(EvaluatorDied, match=f"{written} of {planned} planned samples"):
        evaluate(start(written=written, planned=planned))


def test_a_result_with_a_sample_of_which_nothing_is_known_is_no_result(start: Start) -> None:
    with pytest.raises(EvaluatorDied, match="contains 1 of 2 planned samples") as caught:
        evaluate(start(written=2, planned=2, known=1))
    assert caught.value.retryable


def test_two_evaluations_of_one_plan_wait_for_each_other(start: Start) -> None:
    evaluator = start()
    shown: SimpleQueue[Progress] = SimpleQueue()
    results: SimpleQueue[EvalResult] = SimpleQueue()
    runs = evaluator.work_dir / "runs"
    runs.mkdir(parents=True)
    with (runs / "plan.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        thread = threading.Thread(target=lambda: results.put(evaluate(evaluator, shown.put)))
        thread.start()
        first = shown.get(timeout=120)
    thread.join()
    assert first.note == "waiting for another evaluation of the same checkpoint"
    assert len(results.get(timeout=120).samples) == 2


def test_what_another_evaluation_works_on_is_not_forgotten(start: Start) -> None:
    evaluator = start()
    evaluate(evaluator)
    runs = evaluator.work_dir / "runs"
    with (runs / "plan.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        evaluator.forget("plan")
        assert list((runs / "plan").rglob("planned.jsonl"))
    evaluator.forget("plan")
    assert list(runs.iterdir()) == []


def test_a_lock_that_was_forgotten_while_one_waited_for_it_is_taken_anew(start: Start) -> None:
    evaluator = start()
    shown: SimpleQueue[Progress] = SimpleQueue()
    runs = evaluator.work_dir / "runs"
    runs.mkdir(parents=True)
    with (runs / "plan.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        thread = threading.Thread(target=lambda: evaluate(evaluator, shown.put))
        thread.start()
        shown.get(timeout=120)
        (runs / "plan.lock").unlink()
    thread.join()
    assert (runs / "plan.lock").is_file()


def test_the_hub_is_asked_only_for_a_benchmark_without_local_data(start: Start, tmp_path: Path) -> None:
    evaluator = start()
    data = tmp_path / "sums.jsonl"
    data.write_text('{"question": "1+1=", "answer": "2"}\n', encoding="utf-8")
    local = Benchmark(name="local", adapter="exact", data=str(data))
    pids = []
    for benchmark in (local, BENCHMARK, BENCHMARK, local):
        evaluate(evaluator, benchmark=benchmark)
        pids.append(child_pid(evaluator))
    said = {path.parent.name.split("-")[0]: path.read_text() for path in evaluator.work_dir.rglob("hub.txt")}
    assert said == {"local": "1", "b": os.environ.get("HF_HUB_OFFLINE", "as it is")}
    assert pids[1] == pids[2]


def test_forgetting_a_plan_that_was_never_evaluated_leaves_nothing(start: Start) -> None:
    evaluator = start()
    evaluator.forget("plan")
    assert not list(evaluator.work_dir.rglob("*"))
