"""What becomes of the files of lm-evaluation-harness, whole and torn, with what the relay saw of the requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from eval_jobs.errors import EndpointFailed, EvaluateError
from eval_jobs.evaluate import upstream
from eval_jobs.evaluate.lm_eval_command import Asked, arguments
from eval_jobs.evaluate.lm_eval_results import result_of
from eval_jobs.evaluate.relay import Relay
from eval_jobs.run import check_accounted
from eval_jobs.types import Benchmark, Program, SampleStatus
from tests.evaluating import endpoint_of, suite_of
from tests.fakes.openai_server import Fault, OpenAIServer, Reply, context_overflow

BENCHMARK = Benchmark(name="sums", adapter="sums", program=Program(name="lm-eval", version="lm-eval 0.4.13"))
ROUTE = "/v1/completions"


def row(prompt: str, score: float | None, **more: object) -> dict[str, object]:
    """Return a line as the harness writes it."""
    arguments = {"gen_args_0": {"arg_0": prompt, "arg_1": {}}}
    found: dict[str, object] = {"target": "t", "arguments": arguments, "resps": [["a"]], "filtered_resps": ["a"]}
    return found | {"filter": "none", "exact_match": score} | more


def write(folder: Path, tasks: dict[str, list[dict[str, object]]], *, up: bool = True, lost: int = 0) -> None:
    """Write what one run of the harness leaves."""
    place = folder / "model"
    place.mkdir(parents=True)
    document = {
        "results": {task: {"exact_match,none": 0.5, "exact_match_stderr,none": 0.1} for task in tasks},
        "configs": {task: {"output_type": "generate_until"} for task in tasks},
        "higher_is_better": {task: {"exact_match": up} for task in tasks},
        "n-samples": {task: {"effective": len(rows) + lost} for task, rows in tasks.items()},
    }
    (place / "results_2026.json").write_text(json.dumps(document))
    for task, rows in tasks.items():
        (place / f"samples_{task}_2026.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(lambda _: Reply(text="a")) as server:
        yield server


@pytest.fixture
def relay(server: OpenAIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Relay]:
    monkeypatch.setattr(upstream, "PAUSES_S", (0.0, 0.0))
    with Relay(endpoint_of(server), tmp_path / "answers.jsonl", timeout_s=20.0) as relay:
        yield relay


def ask(relay: Relay, prompt: str) -> httpx.Response:
    """Ask as the harness does."""
    headers = {"Authorization": f"Bearer {relay.token}"}
    return httpx.post(relay.base_url + ROUTE, json={"prompt": [prompt], "model": "model"}, headers=headers, timeout=60)


def test_a_sample_whose_request_nobody_saw_is_an_error_and_so_is_a_line_that_is_missing(
    relay: Relay, tmp_path: Path
) -> None:
    ask(relay, "one")
    write(tmp_path / "out", {"sums": [row("one", 1.0), row("two", 0.0)]}, lost=1)
    result = result_of(tmp_path / "out", BENCHMARK, suite_of(BENCHMARK), relay)
    assert [s.status for s in result.samples] == [SampleStatus.SCORED, SampleStatus.ERROR, SampleStatus.ERROR]
    assert [s.score for s in result.samples] == [1.0, None, None]
    check_accounted(result)


def test_an_answer_without_a_value_is_unscored(relay: Relay, tmp_path: Path) -> None:
    ask(relay, "one")
    ask(relay, "two")
    write(tmp_path / "out", {"sums": [row("one", None), row("two", 1.0)]})
    result = result_of(tmp_path / "out", BENCHMARK, suite_of(BENCHMARK), relay)
    assert [s.status for s in result.samples] == [SampleStatus.UNSCORED, SampleStatus.SCORED]


def test_a_group_is_one_benchmark_with_a_subset_for_each_task(relay: Relay, tmp_path: Path) -> None:
    ask(relay, "one")
    write(tmp_path / "out", {"a": [row("one", 1.0)], "b": [row("one", 0.0)]})
    result = result_of(tmp_path / "out", BENCHMARK, suite_of(BENCHMARK), relay)
    assert [(s.subset, s.score) for s in result.samples] == [("a", 1.0), ("b", 0.0)]
    check_accounted(result)


TORN: dict[str, tuple[str, str]] = {
    "no results": ("results_2026.json", ""),
    "half a document": ("results_2026.json", '{"results": {'),
    "a list": ("results_2026.json", "[]"),
    "half a line": ("samples_sums_2026.jsonl", '{"target": '),
    "no samples": ("samples_sums_2026.jsonl", ""),
}


@pytest.mark.parametrize("fault", TORN)
def test_torn_files_are_an_error_and_no_score(fault: str, relay: Relay, tmp_path: Path) -> None:
    write(tmp_path / "out", {"sums": [row("one", 1.0)]})
    name, text = TORN[fault]
    (tmp_path / "out" / "model" / name).write_text(text) if text else (tmp_path / "out" / "model" / name).unlink()
    with pytest.raises(EvaluateError):
        result_of(tmp_path / "out", BENCHMARK, suite_of(BENCHMARK), relay)


def test_a_metric_that_is_better_the_other_way_is_refused(relay: Relay, tmp_path: Path) -> None:
    ask(relay, "one")
    write(tmp_path / "out", {"sums": [row("one", 1.0)]}, up=False)
    with pytest.raises(EvaluateError, match="less is better"):
        result_of(tmp_path / "out", BENCHMARK, suite_of(BENCHMARK), relay)


def test_answers_outlive_the_relay_in_order_and_half_a_line_is_asked_again(
    server: OpenAIServer, relay: Relay, tmp_path: Path
) -> None:
    answers = iter("abc")
    server.answer = lambda _: Reply(text=next(answers))
    said = [ask(relay, prompt).json()["choices"][0]["text"] for prompt in ("x", "x")]
    with (tmp_path / "answers.jsonl").open("a") as file:
        file.write('{"key": "half')
    for _ in range(2):
        with Relay(endpoint_of(server), tmp_path / "answers.jsonl", timeout_s=20.0) as second:
            again = [ask(second, prompt).json()["choices"][0]["text"] for prompt in ("x", "x")]
            assert again == said == ["a", "b"]
            assert len(server.requests) == 2
            assert [o.status for o in second.outcomes("x")] == [SampleStatus.SCORED] * 2


FAULTS: dict[str, Reply] = {
    "refused": context_overflow(),
    "no JSON": Reply(fault=Fault.GARBAGE),
    "half an answer": Reply(text="a", fault=Fault.CUT),
    "500 while it lives": Reply(status=500, text="oops"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_question_without_an_answer_is_an_error_of_its_own(fault: str, server: OpenAIServer, relay: Relay) -> None:
    server.answer = lambda _: FAULTS[fault]
    assert ask(relay, "x").status_code == 200
    (outcome,) = relay.outcomes("x")
    assert (outcome.status, bool(outcome.detail)) == (SampleStatus.ERROR, True)
    assert relay.failure is None


def test_a_server_that_is_gone_ends_it_and_a_stranger_is_not_answered(server: OpenAIServer, relay: Relay) -> None:
    assert httpx.post(relay.base_url + ROUTE, json={"prompt": "x"}).status_code == 401
    assert not server.requests
    server.stop()
    assert ask(relay, "x").status_code == 503
    assert isinstance(relay.failure, EndpointFailed)


def test_likelihoods_that_are_refused_fail_the_benchmark(server: OpenAIServer, relay: Relay) -> None:
    server.answer = lambda _: context_overflow()
    body: dict[str, Any] = {"prompt": [[1, 2]], "echo": True}
    status, _ = relay.answer(ROUTE, body)
    assert status == 503
    assert isinstance(relay.failure, EvaluateError)


def test_no_setting_of_the_suite_is_left_to_a_default(server: OpenAIServer) -> None:
    words = arguments(
        BENCHMARK, suite_of(BENCHMARK), endpoint_of(server), Asked(base_url="http://127.0.0.1:1", out="/out")
    )
    text = " ".join(words)
    for part in ("temperature=0.0", "top_p=1.0", "max_gen_toks=16", "seed=0", "num_concurrent=4", "--seed 0,1234"):
        assert part in text
    assert "--limit" not in words
    assert "--trust_remote_code" not in words
