"""The real evaluator with several benchmarks at once: one budget, each fails alone, and its process stays small."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from eval_jobs.errors import BadData, EndpointFailed, EvaluatorDied, UnknownBenchmark
from eval_jobs.evaluate.common import child_process
from eval_jobs.evaluate.common.protocol import FAILURES_FILE
from eval_jobs.evaluate.common.task_config import run_folder
from eval_jobs.evaluate.data.files import read_data_digest
from eval_jobs.evaluate.evalscope.evaluator import EvalScopeEvaluator
from eval_jobs.records.progress import Progress, progress_text
from eval_jobs.types import Benchmark, EvalResult, Generation, SampleStatus, Suite
from tests.evaluating import AT_ONCE, child_pid, endpoint_of, evaluate_one, quiet, write_jsonl
from tests.fakes.openai_server import OpenAIServer, Reply, Request, context_overflow
from tests.requires import PROJECT

CONCURRENCY = 4


@pytest.fixture(scope="module")
def evaluator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EvalScopeEvaluator]:
    evaluator = EvalScopeEvaluator(tmp_path_factory.mktemp("at-once"), retry_policy=AT_ONCE)
    yield evaluator
    evaluator.close()


@pytest.fixture
def plan_id(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def benchmark(folder: Path, name: str, count: int, *, max_tokens: int | None = None) -> Benchmark:
    """Questions `NAME 0` and so on, each answered by itself."""
    path = folder / f"{name}.jsonl"
    write_jsonl(path, [{"question": f"{name} {n}", "answer": f"{name} {n}"} for n in range(count)])
    digest = read_data_digest(path)
    return Benchmark(name=name, adapter="exact", data=str(path), data_digest=digest, max_tokens=max_tokens)


def suite_of(*benchmarks: Benchmark) -> Suite:
    generation = Generation(max_tokens=16)
    return Suite(name="s", benchmarks=benchmarks, generation=generation, concurrency=CONCURRENCY)


def echo(request: Request) -> Reply:
    return Reply(text=request.prompt)


class Crowd:
    """Answers one question only while as many are in flight as may be, or as are left."""

    def __init__(self, total: int) -> None:
        self.most = 0
        self.starved: list[str] = []
        self._left = total
        self._inside = 0
        self._changed = threading.Condition()

    def __call__(self, request: Request) -> Reply:
        with self._changed:
            self._inside += 1
            self.most = max(self.most, self._inside)
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: self._inside >= min(CONCURRENCY, self._left), timeout=120):
                self.starved.append(request.prompt)
            self._inside -= 1
            self._left -= 1
            self._changed.notify_all()
        return echo(request)


def test_all_benchmarks_share_one_budget_which_is_never_exceeded_and_used_up_to_the_last_questions(
    evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str
) -> None:
    suite = suite_of(*(benchmark(tmp_path, name, count) for name, count in (("a", 9), ("b", 2), ("c", 7))))
    crowd = Crowd(total=18)
    with OpenAIServer(crowd) as server:
        outcomes = evaluator.evaluate(suite, endpoint_of(server), plan_id=plan_id, progress=quiet)
    assert crowd.starved == []
    assert crowd.most == CONCURRENCY
    assert [outcome.benchmark for outcome in outcomes if isinstance(outcome, EvalResult)] == ["a", "b", "c"]
    assert [len(outcome.samples) for outcome in outcomes if isinstance(outcome, EvalResult)] == [9, 2, 7]
    assert {s.score for outcome in outcomes if isinstance(outcome, EvalResult) for s in outcome.samples} == {1.0}


def test_a_budget_of_one_asks_one_question_after_the_other(
    evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str
) -> None:
    suite = replace(suite_of(benchmark(tmp_path, "a", 4), benchmark(tmp_path, "b", 4)), concurrency=1)
    in_flight, most = [0], [0]

    def answer(request: Request) -> Reply:
        in_flight[0] += 1
        most[0] = max(most[0], in_flight[0])
        threading.Event().wait(0.01)
        in_flight[0] -= 1
        return echo(request)

    with OpenAIServer(answer) as server:
        outcomes = evaluator.evaluate(suite, endpoint_of(server), plan_id=plan_id, progress=quiet)
        assert len(server.requests) == 8
    assert most == [1]
    assert all(isinstance(outcome, EvalResult) for outcome in outcomes)


def test_the_longest_answers_are_asked_for_first_whatever_the_order_in_the_suite(
    evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str
) -> None:
    short, long = benchmark(tmp_path, "short", 20, max_tokens=8), benchmark(tmp_path, "long", 20, max_tokens=512)
    with OpenAIServer(echo) as server:
        outcomes = evaluator.evaluate(suite_of(short, long), endpoint_of(server), plan_id=plan_id, progress=quiet)
        asked = [request.prompt.split()[0] for request in server.requests]
    # A short one is begun when all long ones are: at most five threads have one of them in hand then.
    assert asked[:15] == ["long"] * 15
    assert [outcome.benchmark for outcome in outcomes if isinstance(outcome, EvalResult)] == ["short", "long"]


def test_benchmarks_at_once_give_what_each_gives_alone(
    evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str
) -> None:
    """Nothing of one benchmark reaches another: scores, settings, examples, seeds."""
    write_jsonl(
        tmp_path / "mcq" / "hard_val.jsonl",
        [{"question": f"mcq {n}", "A": "x", "B": "y", "answer": "AB"[n % 2]} for n in range(9)],
    )
    choices: list[dict[str, object]] = [
        {"question": f"choice {n}", "choices": ["p", "q", "r"], "answer": n % 3} for n in range(9)
    ]
    write_jsonl(tmp_path / "choice.jsonl", choices)
    benchmarks = (
        replace(benchmark(tmp_path, "repeated", 5), repeats=2, max_tokens=5),
        Benchmark(name="mcq", adapter="general_mcq", data=str(tmp_path / "mcq"), subsets=("hard",)),
        Benchmark(name="choice", adapter="choice", data=str(tmp_path / "choice.jsonl"), max_tokens=9),
    )
    seen: Counter[tuple[str, int, int]] = Counter()

    def answer(request: Request) -> Reply:
        seen[request.prompt, request.body["max_tokens"], request.body["seed"]] += 1
        return Reply(text="ANSWER: A" if "mcq" in request.prompt or "choice" in request.prompt else request.prompt)

    with OpenAIServer(answer) as server:
        endpoint = endpoint_of(server)
        together = evaluator.evaluate(suite_of(*benchmarks), endpoint, plan_id=plan_id, progress=quiet)
        asked_together, seen = seen, Counter()
        alone = [evaluate_one(evaluator, suite_of(b), endpoint, plan_id=f"{plan_id} {b.name}") for b in benchmarks]
    results = [outcome for outcome in together if isinstance(outcome, EvalResult)]
    assert [result.samples for result in results] == [result.samples for result in alone]
    assert [result.metric for result in results] == [result.metric for result in alone]
    assert asked_together == seen
    assert {sample.score for sample in results[1].samples} == {0.0, 1.0}


def test_one_benchmark_that_fails_leaves_the_others_alone(
    evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str
) -> None:
    good, refused = benchmark(tmp_path, "good", 12), benchmark(tmp_path, "refused", 6)
    crashing = benchmark(tmp_path, "crashing", 6)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.txt").write_text("nothing to ask")
    broken = Benchmark(name="broken", adapter="general_mcq", data=str(tmp_path / "empty"))
    unknown = Benchmark(name="unknown", adapter="gsm8kk")
    replies = {"refused": context_overflow(), "crashing": Reply(status=500, text="worker crashed")}

    def answer(request: Request) -> Reply:
        return replies.get(request.prompt.split()[0], echo(request))

    suite = suite_of(refused, unknown, good, crashing, broken)
    with OpenAIServer(answer) as server:
        outcomes = evaluator.evaluate(suite, endpoint_of(server), plan_id=plan_id, progress=quiet)
    found = dict(zip((b.name for b in suite.benchmarks), outcomes, strict=True))
    assert isinstance(found["good"], EvalResult)
    assert {sample.score for sample in found["good"].samples} == {1.0}
    assert isinstance(found["refused"], EvalResult)
    assert {sample.status for sample in found["refused"].samples} == {SampleStatus.ERROR}
    errors = {name: getattr(outcome, "code", None) for name, outcome in found.items()}
    assert errors["crashing"] == EndpointFailed.code
    assert errors["broken"] == BadData.code
    assert errors["unknown"] == UnknownBenchmark.code


def test_a_server_that_dies_ends_all_benchmarks_and_each_is_resumed_at_what_it_misses(
    evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str
) -> None:
    suite = suite_of(*(benchmark(tmp_path, name, 8) for name in ("a", "b", "c")))

    def die(request: Request) -> Reply:
        if request.number >= 12:
            server.stop()
        return echo(request)

    with OpenAIServer(die) as server:
        outcomes = evaluator.evaluate(suite, endpoint_of(server), plan_id=plan_id, progress=quiet)
        before = server.prompts()
    unfinished = [outcome for outcome in outcomes if not isinstance(outcome, EvalResult)]
    assert len(unfinished) >= 2
    assert {type(outcome) for outcome in unfinished} == {EndpointFailed}
    assert all(f"{server.base_url} failed after " in outcome.message for outcome in unfinished)
    with OpenAIServer(echo) as server:
        outcomes = evaluator.evaluate(suite, endpoint_of(server), plan_id=plan_id, progress=quiet)
        again = server.prompts()
    assert set(before) | set(again) == {f"{name} {n}" for name in ("a", "b", "c") for n in range(8)}
    assert len(again) == len(set(again)) <= 24 - (12 - CONCURRENCY)
    results = [outcome for outcome in outcomes if isinstance(outcome, EvalResult)]
    assert [{sample.score for sample in result.samples} for result in results] == [{1.0}] * 3


def test_a_killed_evaluator_loses_no_answer_of_any_benchmark_and_no_result_of_one_that_was_done(
    evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str
) -> None:
    done = benchmark(tmp_path, "done", 3, max_tokens=512)
    suite = suite_of(done, benchmark(tmp_path, "a", 12), benchmark(tmp_path, "b", 12))

    is_over = evaluator.work_dir / "runs" / run_folder(done, suite, plan_id) / FAILURES_FILE

    killed = threading.Event()

    def slow(request: Request) -> Reply:
        for _ in range(2400 if request.number >= 13 else 0):
            if is_over.exists():
                break
            threading.Event().wait(0.05)
        if request.number >= 14:
            killed.wait(120)
        return echo(request)

    def progress(now: Progress) -> None:
        if (now.done, now.total) == (14, 27):
            os.kill(child_pid(evaluator) or 0, signal.SIGKILL)
            killed.set()

    with OpenAIServer(slow) as server:
        outcomes = evaluator.evaluate(suite, endpoint_of(server), plan_id=plan_id, progress=progress)
    assert isinstance(outcomes[0], EvalResult)
    assert {type(outcome) for outcome in outcomes[1:]} == {EvaluatorDied}
    with OpenAIServer(echo) as server:
        outcomes = evaluator.evaluate(suite, endpoint_of(server), plan_id=plan_id, progress=quiet)
        assert len(server.requests) <= 27 - 14
    assert all(isinstance(outcome, EvalResult) for outcome in outcomes)


def test_progress_is_one_line_for_all_and_never_goes_back(
    evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str
) -> None:
    suite = suite_of(benchmark(tmp_path, "a", 5), benchmark(tmp_path, "b", 4))
    shown: list[Progress] = []
    with OpenAIServer(echo) as server:
        evaluator.evaluate(suite, endpoint_of(server), plan_id=plan_id, progress=shown.append)
    counts = [now.done for now in shown if now.done is not None]
    assert {now.benchmarks for now in shown if now.note != "starting the evaluator"} == {("a", "b")}
    assert counts == sorted(counts)
    assert progress_text(shown[-1]) == "a, b 9/9"


# --- its process

OVERRIDDEN = """
import inspect
from evalscope.evaluator import DefaultEvaluator
from evalscope.utils.multi_choices import SINGLE_ANSWER_TEMPLATE
from eval_jobs.evaluate.data.known_benchmarks import choice_template
from eval_jobs.evaluate.evalscope.child.recorder import Recorder
assert choice_template() == SINGLE_ANSWER_TEMPLATE
for name in sorted(set(vars(Recorder)) & set(vars(DefaultEvaluator)) - {"__init__"}):
    if inspect.isfunction(method := getattr(DefaultEvaluator, name)):
        print(name, *inspect.signature(method).parameters)
"""


def test_evalscope_still_has_the_methods_that_we_replace_and_the_prompt_that_we_read() -> None:
    """A method that has another name in a later version would not be replaced, without an error."""
    done = subprocess.run([sys.executable, "-c", OVERRIDDEN], check=True, capture_output=True, text=True, cwd=PROJECT)
    assert done.stdout.splitlines()[-6:] == [
        "_collect_work_items self dataset_dict",
        "_predict_sample self sample model_prediction_dir",
        "_process_work_item self item model_prediction_dir",
        "_run_pool self context",
        "eval self",
        "get_report self agg_score_dict execution_summary",
    ]


def test_the_time_of_all_is_shared_out_among_them(evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str) -> None:
    """Costs are added up over benchmarks: what ran at the same time must not be counted twice."""
    started_s = time.monotonic()
    suite = suite_of(benchmark(tmp_path, "fast", 8), benchmark(tmp_path, "slow", 8))

    def answer(request: Request) -> Reply:
        return replace(echo(request), first_token_delay_s=0.1 if "slow" in request.prompt else 0.0)

    with OpenAIServer(answer) as server:
        fast, slow = evaluator.evaluate(suite, endpoint_of(server), plan_id=plan_id, progress=quiet)
    assert isinstance(fast, EvalResult)
    assert isinstance(slow, EvalResult)
    assert slow.duration_s >= 0.1, "two rounds of a tenth of a second, less what else was asked meanwhile"
    assert 0 < fast.duration_s < fast.duration_s + slow.duration_s <= time.monotonic() - started_s


def test_the_evaluator_does_not_load_what_it_need_not(
    evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str
) -> None:
    """EvalScope imports torch at the end of every run, to empty a cache that nobody filled: 200 MB."""
    with OpenAIServer(echo) as server:
        evaluate_one(evaluator, suite_of(benchmark(tmp_path, "a", 2)), endpoint_of(server), plan_id=plan_id)
    mapped = {Path(entry.path).name for entry in psutil.Process(child_pid(evaluator)).memory_maps()}
    assert not {name for name in mapped if "torch" in name}


@pytest.mark.parametrize("limit", ["MAX_REQUESTS", "MAX_GROWTH_BYTES"])
def test_an_evaluator_that_has_done_much_or_grows_is_replaced_between_two_evaluations(
    evaluator: EvalScopeEvaluator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    evaluator.close()
    monkeypatch.setattr(child_process, "SETTLED_AFTER", 1)
    monkeypatch.setattr(child_process, limit, 2 if limit == "MAX_REQUESTS" else -(2**30))
    pids: list[int | None] = []

    def note(_: Progress) -> None:
        pids.append(child_pid(evaluator))

    suite = suite_of(benchmark(tmp_path, "a", 5))
    for number in range(3):
        with OpenAIServer(echo) as server:
            result = evaluate_one(evaluator, suite, endpoint_of(server), plan_id=f"{limit} {number}", progress=note)
        assert {sample.score for sample in result.samples} == {1.0}
    assert len(set(pids) - {None}) == 2, "the first did two, the second one"
