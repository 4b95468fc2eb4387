"""The second evaluator: the real lm-evaluation-harness with a model of ours, over tasks of this machine."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from eval_jobs.errors import BadData, ConfigError, EndpointRefused, TrackerError
from eval_jobs.evaluate.lm_eval.place import found_command
from eval_jobs.evaluate.selection import EvaluatorByName
from eval_jobs.host.clock import SystemClock
from eval_jobs.ports import Evaluator
from eval_jobs.types import Benchmark, EvalResult, SampleStatus
from tests.evaluating import endpoint_of, evaluate_one, quiet, suite_of
from tests.fakes.openai_server import OpenAIServer, Reply, Request, context_overflow
from tests.harness_tasks import sums, task
from tests.requires import PROJECT


@pytest.fixture
def evaluator(tmp_path: Path) -> Evaluator:
    """As a worker has it."""
    return EvaluatorByName(tmp_path / "work", SystemClock(), log_name="harness.log")


def number_in(request: Request) -> int:
    return int(request.prompt.split("+")[0].split('"')[-1])


def mixed(request: Request) -> Reply:
    """Refuse 2, cut 3 off, answer 4 wrongly and the others rightly."""
    number = number_in(request)
    if number == 2:
        return context_overflow()
    if number == 4:
        return Reply(text="wrong")
    return Reply(text=str(number + 1), finish_reason="length" if number == 3 else "stop")


def evaluate(
    evaluator: Evaluator, benchmark: Benchmark, answer: Callable[[Request], Reply], plan_id: str = "p"
) -> tuple[EvalResult, list[Request]]:
    with OpenAIServer(answer) as server:
        result = evaluate_one(evaluator, suite_of(benchmark), endpoint_of(server), plan_id=plan_id)
        return result, server.requests


def test_a_refused_and_a_cut_answer_are_no_wrong_answers_and_every_parameter_is_sent(
    evaluator: Evaluator, tmp_path: Path
) -> None:
    benchmark = task(tmp_path / "tasks", sums(6), command=found_command("lm_eval"))  # whole, as people have it
    suite = replace(suite_of(benchmark), benchmarks=(replace(benchmark, name="bad", subsets=("x",)), benchmark))
    with OpenAIServer(mixed) as server:
        bad, result = evaluator.evaluate(suite, endpoint_of(server), plan_id="p", progress=quiet)
    assert isinstance(bad, TrackerError)
    assert isinstance(result, EvalResult)
    assert [(s.status, s.score) for s in result.samples] == [
        (SampleStatus.SCORED, 1.0),
        (SampleStatus.SCORED, 1.0),
        (SampleStatus.ERROR, None),
        (SampleStatus.TRUNCATED, 1.0),
        (SampleStatus.SCORED, 0.0),
        (SampleStatus.SCORED, 1.0),
    ]
    assert "maximum context length" in result.samples[2].detail
    assert result.metric == "exact_match,none"
    assert (result.output_tokens, result.samples[0].target) == (5, "1")
    assert len({s.sample_id for s in result.samples}) == 6
    sent = {"temperature": 0.0, "top_p": 1.0, "max_tokens": 16, "seed": 0, "model": "fake", "stop": ["\n"]}
    assert all(set(request.body) == {*sent, "prompt"} for request in server.requests)
    assert all(sent.items() <= request.body.items() for request in server.requests)


WRONG: dict[str, tuple[dict[str, Any], type[TrackerError], str]] = {
    "no such task": ({"adapter": "nothing_like_it"}, BadData, "no task `nothing_like_it`"),
    "a template": ({"prompt_template": "{question}"}, BadData, "prompt_template"),
    "subsets": ({"subsets": ("a",)}, BadData, "subsets"),
    "repeats": ({"repeats": 2}, BadData, "repeats"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_what_cannot_be_obeyed_is_refused_with_its_name(fault: str, evaluator: Evaluator, tmp_path: Path) -> None:
    change, error, said = WRONG[fault]
    with pytest.raises(error, match=said):
        evaluate(evaluator, replace(task(tmp_path / "tasks", sums(2)), **change), mixed)


def test_another_version_than_was_planned_is_refused(evaluator: Evaluator, tmp_path: Path) -> None:
    benchmark = task(tmp_path / "tasks", sums(2))
    assert benchmark.program is not None
    older = replace(benchmark, program=replace(benchmark.program, version="lm-eval 0.3.0"))
    with pytest.raises(ConfigError, match=r"planned with lm-eval 0\.3\.0"):
        evaluate(evaluator, older, mixed)
    gone = replace(benchmark, program=replace(benchmark.program, command="/nowhere/bin/lm_eval"))
    with pytest.raises(ConfigError, match="/nowhere/bin"):
        evaluate(evaluator, gone, mixed)


def test_a_key_that_is_refused_is_no_score_and_never_reaches_the_harness(
    evaluator: Evaluator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWAY_KEY", "wrong-wrong-wrong")
    suite = suite_of(task(tmp_path / "tasks", sums(2)))
    with OpenAIServer(mixed, api_key="right-right-right") as server, pytest.raises(EndpointRefused):
        evaluate_one(evaluator, suite, endpoint_of(server, api_key_env="GATEWAY_KEY"), plan_id="p")
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"wrong-wrong-wrong" in path.read_bytes()]


PARENT = """
import sys
from pathlib import Path
from eval_jobs.evaluate.lm_eval.evaluator import LmEvalEvaluator
from eval_jobs.execute.worker.orphans import evaluator_log_name
from tests.evaluating import *
from tests.fakes.openai_server import Fault
from tests.harness_tasks import sums, task

folder = Path(sys.argv[1])

def hang(request):
    if request.number < 2:
        return Reply(text="7")
    if request.number == 2:
        print("asked", flush=True)
    return Reply(fault=Fault.HANG)

with OpenAIServer(hang) as server:
    evaluator = LmEvalEvaluator(folder / "work", log_name=evaluator_log_name())
    benchmark = task(folder / "tasks", sums(6), chat="true")
    evaluate_one(evaluator, suite_of(benchmark, concurrency=2), endpoint_of(server), plan_id="p")
"""


def running(folder: Path) -> list[psutil.Process]:
    """Return the processes that evaluate something below a folder."""
    found = []
    for process in psutil.process_iter(["cmdline", "cwd"]):
        words = process.info["cmdline"] or []
        if any(word.endswith("child/start.py") for word in words) and str(folder) in (process.info["cwd"] or ""):
            found.append(process)
    return found


def test_no_process_outlives_a_worker_that_is_killed_and_the_next_one_asks_only_the_rest(
    evaluator: Evaluator, tmp_path: Path
) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=PROJECT,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
    )
    with parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "asked\n"
        harness = running(tmp_path)
        assert harness
        parent.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(harness, timeout=60)
    assert not alive
    assert evaluator.kept() == ("p",)
    benchmark = task(tmp_path / "tasks", sums(6), chat="true")
    with OpenAIServer(lambda request: Reply(text=str(number_in(request) + 1))) as server:
        result = evaluate_one(evaluator, suite_of(benchmark, concurrency=2), endpoint_of(server), plan_id="p")
    assert all(request.path == "/v1/chat/completions" for request in server.requests)
    answers = Counter(sample.answer for sample in result.samples)
    kept = 6 - len(server.requests)
    assert kept in {1, 2}, "the answer that was on its way when it died may be lost"
    assert answers["7"] >= kept
    assert Counter(s.status for s in result.samples) == {SampleStatus.SCORED: 6}
    evaluator.forget("p")
    assert evaluator.kept() == ()
