"""The real EvalScope child against a server that fails in every way: a failure is never a wrong answer."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from eval_jobs.errors import (
    BadData,
    DiskFull,
    EndpointFailed,
    EndpointRefused,
    EvaluateError,
    EvaluatorDied,
    StoreError,
)
from eval_jobs.evaluate.common.task_config import run_folder
from eval_jobs.evaluate.evalscope.evaluator import EvalScopeEvaluator
from eval_jobs.records.progress import Progress, progress_text
from eval_jobs.types import Benchmark, EvalResult, Generation, SampleStatus, Suite
from tests.evaluating import (
    AT_ONCE,
    ask,
    child_pid,
    endpoint_of,
    evaluate_one,
    number_of,
    right,
    suite_of,
    sums,
    write_jsonl,
)
from tests.fakes.openai_server import Fault, OpenAIServer, Reply, Request, context_overflow
from tests.requires import PROJECT

COUNT = 20
SECRET = "sk-very-secret"  # noqa: S105 - no real one


@pytest.fixture(scope="module")
def evaluator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EvalScopeEvaluator]:
    evaluator = EvalScopeEvaluator(tmp_path_factory.mktemp("faults"), retry_policy=AT_ONCE)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TEST_API_KEY", SECRET)  # the child inherits it when it starts
        yield evaluator
    evaluator.close()


@pytest.fixture
def plan_id(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def test_an_answer_cut_at_max_tokens_counts_with_the_score_it_got(
    evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str
) -> None:
    def answer(request: Request) -> Reply:
        return replace(right(request), finish_reason="length")

    with OpenAIServer(answer) as server:
        result = ask(evaluator, server, sums(tmp_path, 3), plan_id=plan_id)
    assert [(s.status, s.score) for s in result.samples] == [(SampleStatus.TRUNCATED, 1.0)] * 3


@pytest.mark.parametrize("fault", [Fault.HANG, Fault.CLOSE, Fault.GARBAGE], ids=["hangs", "closes", "garbage"])
def test_a_server_that_lives_and_answers_nothing_is_a_failure_to_retry(
    evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str, fault: Fault
) -> None:
    with OpenAIServer(lambda _: Reply(fault=fault)) as server, pytest.raises(EndpointFailed) as caught:
        ask(evaluator, server, sums(tmp_path, COUNT), plan_id=plan_id, timeout_s=1.0)
    assert "4 consecutive requests failed" in caught.value.message
    assert f"failed after 0 of {COUNT} samples of `sums`" in caught.value.message
    assert caught.value.retryable


def test_a_server_that_rejects_every_request_is_reported_with_its_reason(
    evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str
) -> None:
    refusal = Reply(status=400, text="the model has no chat template")
    with OpenAIServer(lambda _: refusal) as server, pytest.raises(EndpointFailed, match="has no chat template"):
        ask(evaluator, server, sums(tmp_path, 3), plan_id=plan_id)


def test_when_no_question_fits_into_the_context_every_sample_is_an_error(
    evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str
) -> None:
    with OpenAIServer(lambda _: context_overflow()) as server:
        result = ask(evaluator, server, sums(tmp_path, 3), plan_id=plan_id)
    assert [(s.status, s.score) for s in result.samples] == [(SampleStatus.ERROR, None)] * 3
    assert result.metric == "accuracy"


def test_another_model_at_the_address_is_not_scored(
    evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str
) -> None:
    with OpenAIServer(right) as server:
        benchmark = sums(tmp_path, 3)
        endpoint = replace(endpoint_of(server, log="/logs/vllm.log"), model="step-100")
        with pytest.raises(EndpointFailed, match="`step-100` does not exist") as caught:
            evaluate_one(evaluator, suite_of(benchmark), endpoint, plan_id=plan_id)
    assert "/logs/vllm.log" in caught.value.hint
    assert "evaluator-" in caught.value.hint


def test_the_api_key_is_used_and_never_written_down(
    evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str
) -> None:
    benchmark = sums(tmp_path, 3)
    suite = suite_of(benchmark)
    with OpenAIServer(right, api_key=SECRET) as server:
        with pytest.raises(EndpointRefused, match="HTTP 401"):
            evaluate_one(evaluator, suite, endpoint_of(server), plan_id=plan_id)
        missing = endpoint_of(server, api_key_env="TEST_NO_SUCH_KEY")
        with pytest.raises(EndpointFailed, match="is not set") as caught:
            evaluate_one(evaluator, suite, missing, plan_id=plan_id)
        endpoint = endpoint_of(server, api_key_env="TEST_API_KEY")
        result = evaluate_one(evaluator, suite, endpoint, plan_id=plan_id)
    assert "TEST_NO_SUCH_KEY" in caught.value.hint
    assert {s.score for s in result.samples} == {1.0}
    written = [p for p in evaluator.work_dir.rglob("*") if p.is_file() and SECRET.encode() in p.read_bytes()]
    assert written == []


def test_every_repeat_has_its_own_seed_and_every_parameter_is_sent(
    evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str
) -> None:
    benchmark = replace(sums(tmp_path, 2), repeats=3, max_tokens=5)
    generation = Generation(max_tokens=99, temperature=0.7, top_p=0.9, top_k=40, seed=10)
    with OpenAIServer(right) as server:
        suite = replace(suite_of(benchmark), generation=generation)
        evaluate_one(evaluator, suite, endpoint_of(server), plan_id=plan_id)
        bodies = [request.body for request in server.requests]
    assert sorted((body["messages"][0]["content"], body["seed"]) for body in bodies) == [
        (question, seed) for question in ("0+1=", "1+1=") for seed in (10, 11, 12)
    ]
    expected = {"max_tokens": 5, "temperature": 0.7, "top_p": 0.9, "top_k": 40}
    assert all({key: body[key] for key in expected} == expected for body in bodies)


def test_progress_counts_what_is_done_and_starts_where_it_stopped(
    evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str
) -> None:
    benchmark = sums(tmp_path, 4)
    suite = suite_of(benchmark, concurrency=1)
    before: list[Progress] = []
    after: list[Progress] = []

    def answer(request: Request) -> Reply:
        return Reply(status=404, text="gone") if request.number >= 2 else right(request)

    with OpenAIServer(answer) as server, pytest.raises(EndpointFailed):
        evaluate_one(evaluator, suite, endpoint_of(server), plan_id=plan_id, progress=before.append)
    with OpenAIServer(right) as server:
        evaluate_one(evaluator, suite, endpoint_of(server), plan_id=plan_id, progress=after.append)
    counts = [progress_text(now) for now in before if now.done is not None]
    # Answers that are written down are counted a moment later, and the evaluation may end in between.
    assert counts == ["sums 0/4", "sums 1/4", "sums 2/4"][: len(counts)]
    assert "sums 0/4" in counts
    assert [progress_text(now) for now in after if now.done is not None] == ["sums 2/4", "sums 3/4", "sums 4/4"]


def test_data_that_evalscope_cannot_load_is_named_by_the_users_path(
    evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("nothing to ask")
    benchmark = Benchmark(name="mine", adapter="general_mcq", data=str(tmp_path / "mine"))
    with OpenAIServer(right) as server, pytest.raises(BadData, match="cannot load the data of `mine`") as caught:
        ask(evaluator, server, benchmark, plan_id=plan_id)
    assert str(tmp_path / "mine") in caught.value.message


def test_a_metric_that_cannot_be_computed_leaves_the_sample_unscored(
    evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str
) -> None:
    write_jsonl(tmp_path / "qa" / "facts.jsonl", [{"query": "capital of France?", "response": "It is Paris"}])
    benchmark = Benchmark(name="qa", adapter="general_qa", data=str(tmp_path / "qa"), subsets=("facts",))
    with OpenAIServer(lambda _: Reply(text="Paris")) as server:
        (sample,) = ask(evaluator, server, benchmark, plan_id=plan_id).samples
    assert (sample.status, sample.score) == (SampleStatus.UNSCORED, None)
    assert "punkt_tab" in sample.detail


@pytest.mark.parametrize(
    ("place", "expected", "message"),
    [
        ("/dev/full", DiskFull, "cannot write to .*: No space left"),
        ("/no/such/folder/x", StoreError, "cannot write to .*: No such file"),
    ],
)
def test_an_answer_that_cannot_be_written_stops_the_evaluation_and_is_not_the_samples_fault(
    evaluator: EvalScopeEvaluator, tmp_path: Path, place: str, expected: type[StoreError], message: str
) -> None:
    benchmark, plan_id = sums(tmp_path, 3), expected.code
    run = evaluator.work_dir / "runs" / run_folder(benchmark, suite_of(benchmark), plan_id)
    answers = run / "predictions" / "model" / "tracker_exact_default.jsonl"
    answers.parent.mkdir(parents=True)
    answers.symlink_to(place)
    with OpenAIServer(right) as server:
        with pytest.raises(expected, match=message) as caught:
            ask(evaluator, server, benchmark, plan_id=plan_id)
        answers.unlink()
        result = ask(evaluator, server, benchmark, plan_id=plan_id)
    assert caught.value.retryable is (expected is DiskFull)
    assert {s.score for s in result.samples} == {1.0}


# --- processes that die


def test_a_killed_evaluator_is_named_with_its_log_and_the_next_call_asks_only_what_is_missing(
    evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str
) -> None:
    benchmark = sums(tmp_path, COUNT)

    def kill(request: Request) -> Reply:
        if request.number == 10:
            os.kill(child_pid(evaluator) or 0, signal.SIGKILL)
        return right(request)

    with OpenAIServer(kill) as server:
        with pytest.raises(EvaluatorDied, match="killed by SIGKILL") as caught:
            ask(evaluator, server, benchmark, plan_id=plan_id)
        before = set(map(number_of, server.requests))
    assert caught.value.retryable
    assert "evaluator-" in caught.value.hint
    with OpenAIServer(right) as server:
        result = ask(evaluator, server, benchmark, plan_id=plan_id)
        again = set(map(number_of, server.requests))
    assert len(again) <= COUNT - 5  # of eleven that had come, each of the six threads may hold one unwritten
    assert before | again == set(range(COUNT))
    assert [s.score for s in result.samples] == [1.0] * COUNT


def test_settings_torn_by_a_kill_cost_a_fresh_start_and_nothing_else(
    evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str
) -> None:
    benchmark = sums(tmp_path, 3)
    with OpenAIServer(right) as server:
        ask(evaluator, server, benchmark, plan_id=plan_id)
        run = next(evaluator.work_dir.glob(f"runs/{plan_id}/*/made_by.jsonl"))
        run.write_text(run.read_text()[:200] + "\n  : [torn")
        result = ask(evaluator, server, benchmark, plan_id=plan_id)
    assert {s.score for s in result.samples} == {1.0}


def test_a_truncated_answer_on_disk_is_requested_again(
    evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str
) -> None:
    benchmark = sums(tmp_path, 3)
    with OpenAIServer(right) as server:
        ask(evaluator, server, benchmark, plan_id=plan_id)
        (answers,) = evaluator.work_dir.glob(f"runs/{plan_id}/*/predictions/model/*.jsonl")
        answers.write_text(answers.read_text()[:-40])
        server.requests.clear()
        result = ask(evaluator, server, benchmark, plan_id=plan_id)
        assert len(server.requests) == 1
    assert {s.score for s in result.samples} == {1.0}


def test_an_interrupt_stops_the_evaluator(evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str) -> None:
    benchmark = sums(tmp_path, COUNT)
    child: list[int] = []

    def interrupt(now: Progress) -> None:
        if (now.done, now.total) == (3, COUNT):
            child.append(child_pid(evaluator) or 0)
            raise KeyboardInterrupt

    with OpenAIServer(right) as server, pytest.raises(KeyboardInterrupt):
        evaluate_one(evaluator, suite_of(benchmark), endpoint_of(server), plan_id=plan_id, progress=interrupt)
    assert child_pid(evaluator) is None
    assert not psutil.pid_exists(child[0])


PARENT = """
import sys
from pathlib import Path
from eval_jobs.evaluate.evalscope.evaluator import EvalScopeEvaluator
from eval_jobs.evaluate.common.task_config import run_folder
from tests.evaluating import *
from tests.fakes.openai_server import Fault

def hang(request):
    print("asked", child_pid(evaluator), flush=True)
    return Reply(fault=Fault.HANG)

evaluator = EvalScopeEvaluator(Path(sys.argv[1]) / "work")
with OpenAIServer(hang) as server:
    ask(evaluator, server, sums(Path(sys.argv[1]), 1), plan_id="p")
"""


def test_the_evaluator_never_outlives_its_parent_even_in_the_middle_of_an_evaluation(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=PROJECT, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline().split()[1]))
        parent.kill()
    gone, alive = psutil.wait_procs([child], timeout=120)
    assert (len(gone), len(alive)) == (1, 0)


@pytest.mark.parametrize(
    ("python", "message"), [("/bin/false", "exit code 1"), ("/no/python", "cannot start the evaluator with /no/python")]
)
def test_an_interpreter_that_does_not_work_is_named(tmp_path: Path, python: str, message: str) -> None:
    evaluator = EvalScopeEvaluator(tmp_path / "work", python=python)
    with OpenAIServer(right) as server, pytest.raises(EvaluatorDied, match=message):
        ask(evaluator, server, sums(tmp_path, 1), plan_id="p")
    evaluator.close()


def test_two_threads_may_share_one_evaluator(evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str) -> None:
    results: dict[str, EvalResult] = {}

    def evaluate(name: str) -> None:
        folder = tmp_path / name
        folder.mkdir()
        results[name] = ask(evaluator, server, sums(folder, 5), plan_id=f"{plan_id}-{name}")

    with OpenAIServer(right) as server:
        threads = [threading.Thread(target=evaluate, args=(name,)) for name in ("a", "b")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert all({s.score for s in results[name].samples} == {1.0} for name in ("a", "b"))


def test_a_benchmark_with_a_missing_package_is_reported(
    evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str
) -> None:
    row: dict[str, object] = {"key": 1, "prompt": "p", "instruction_id_list": [], "kwargs": []}
    write_jsonl(tmp_path / "ifeval" / "input.jsonl", [row])
    benchmark = Benchmark(name="ifeval", adapter="ifeval", data=str(tmp_path / "ifeval"))
    suite = Suite(name="s", benchmarks=(benchmark,))
    with OpenAIServer(right) as server, pytest.raises(EvaluateError, match=r"evalscope\[ifeval\]"):
        evaluate_one(evaluator, suite, endpoint_of(server), plan_id=plan_id)
