"""What becomes of the files of lm-evaluation-harness, whole and torn, with what the relay saw of the requests."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path

import httpx
import pytest

from eval_jobs.errors import ConfigError, EndpointFailed, EvaluateError, StoreError
from eval_jobs.evaluate.common.task_config import sampling
from eval_jobs.evaluate.lm_eval import upstream
from eval_jobs.evaluate.lm_eval.command import Asked, arguments
from eval_jobs.evaluate.lm_eval.place import installed_version
from eval_jobs.evaluate.lm_eval.relay import MAX_IN_A_ROW, Relay
from eval_jobs.evaluate.lm_eval.results import result_of
from eval_jobs.run import check_accounted
from eval_jobs.types import Benchmark, Program, SampleStatus
from tests.evaluating import endpoint_of, suite_of
from tests.fakes.openai_server import Fault, OpenAIServer, Reply, context_overflow

BENCHMARK = Benchmark(name="sums", adapter="sums", program=Program(name="lm-eval", version="lm-eval 0.4.13"))
ROUTE = "/v1/completions"
TIME = "2026-11-22T12-34-56.789012"


def row(prompt: str, score: float | None, **more: object) -> dict[str, object]:
    """Return a line as the harness writes it."""
    arguments = {"gen_args_0": {"arg_0": prompt, "arg_1": {}}}
    found: dict[str, object] = {"target": "t", "arguments": arguments, "resps": [["a"]], "filtered_resps": ["a"]}
    return found | {"filter": "none", "exact_match": score} | more


def write(
    folder: Path,
    tasks: dict[str, list[dict[str, object]]],
    *,
    up: bool = True,
    lost: int = 0,
    kind: str = "generate_until",
    version: str = "0.4.13",
) -> None:
    """Write what one run of the harness leaves."""
    place = folder / "model"
    place.mkdir(parents=True)
    document = {
        "results": {task: {"exact_match,none": 0.5, "exact_match_stderr,none": 0.1} for task in tasks},
        "configs": {task: {"output_type": kind} for task in tasks},
        "higher_is_better": {task: {"exact_match": up} for task in tasks},
        "lm_eval_version": version,
        "n-samples": {task: {"effective": len(rows) + lost} for task, rows in tasks.items()},
    }
    (place / f"results_{TIME}.json").write_text(json.dumps(document))
    for task, rows in tasks.items():
        (place / f"samples_{task}_{TIME}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(lambda _: Reply(text="a")) as server:
        yield server


@pytest.fixture
def relay(server: OpenAIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Relay]:
    monkeypatch.setattr(upstream, "PAUSES_S", (0.0, 0.0))
    with opened(server, tmp_path) as relay:
        yield relay


def opened(server: OpenAIServer, folder: Path, *, timeout_s: float = 20.0) -> Relay:
    """Return a relay that keeps what is answered in `folder`."""
    endpoint = endpoint_of(server)
    sent = sampling(BENCHMARK, suite_of(BENCHMARK), endpoint)
    return Relay(endpoint, folder / "answers.jsonl", sent=sent, timeout_s=timeout_s)


def ask(relay: Relay, prompt: object, **more: object) -> httpx.Response:
    """Ask as the harness does."""
    headers, body = {"Authorization": f"Bearer {relay.token}"}, {"prompt": [prompt], "model": "model"}
    return httpx.post(relay.base_url + ROUTE, json=body | more, headers=headers, timeout=60)


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
    tasks = {"a": 1.0, "a_b": 0.0, "a_b_2026": 0.5}  # the names of their files begin alike
    write(tmp_path / "out", {name: [row("one", score)] for name, score in tasks.items()})
    result = result_of(tmp_path / "out", BENCHMARK, suite_of(BENCHMARK), relay)
    assert {s.subset: s.score for s in result.samples} == tasks
    check_accounted(result)


TORN: dict[str, tuple[str, str]] = {
    "no results": (f"results_{TIME}.json", ""),
    "half a document": (f"results_{TIME}.json", '{"results": {'),
    "a list": (f"results_{TIME}.json", "[]"),
    "half a line": (f"samples_sums_{TIME}.jsonl", '{"target": '),
    "no samples": (f"samples_sums_{TIME}.jsonl", ""),
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
        with opened(server, tmp_path) as second:
            again = [ask(second, prompt).json()["choices"][0]["text"] for prompt in ("x", "x")]
            assert again == said == ["a", "b"]
            assert len(server.requests) == 2
            assert [o.status for o in second.outcomes("x")] == [SampleStatus.SCORED] * 2


FAULTS: dict[str, Reply] = {
    "refused": context_overflow(),
    "no JSON": Reply(fault=Fault.GARBAGE),
    "half an answer": Reply(text="a", fault=Fault.CUT),
    "500 while it lives": Reply(status=500, text="oops"),
    "cut by an engine that is stopped": Reply(text="a", finish_reason="abort"),
    "no word on how it ended": Reply(text="a", finish_reason=None),
    "filtered": Reply(text="a", finish_reason="content_filter"),
    "too late": Reply(text="a", first_token_delay_s=1.0),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_question_without_an_answer_is_an_error_of_its_own(
    fault: str, server: OpenAIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream, "PAUSES_S", (0.0, 0.0))
    server.answer = lambda _: FAULTS[fault]
    with opened(server, tmp_path, timeout_s=0.3 if fault == "too late" else 20.0) as relay:
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


def test_where_a_fifth_of_the_questions_fail_there_is_no_result_until_the_same_ones_fail_again(
    server: OpenAIServer, relay: Relay, tmp_path: Path
) -> None:
    server.answer = lambda request: Reply(status=500) if request.prompt in {"3", "4"} else Reply(text="a")
    for number in range(10):
        relay.answer(ROUTE, {"prompt": str(number)})
    with pytest.raises(EndpointFailed, match=r"2 of 10 requests of `sums`"):
        relay.check("sums")
    with opened(server, tmp_path) as second:
        for number in range(10):
            second.answer(ROUTE, {"prompt": str(number)})
        second.check("sums")
        statuses = [second.outcomes(str(number))[0].status for number in range(10)]
    assert statuses.count(SampleStatus.ERROR) == 2


REFUSALS = {"a context that is too small": context_overflow(), "an API that is not there": Reply(status=400, text="no")}


@pytest.mark.parametrize("why", REFUSALS)
def test_a_server_that_refuses_every_question_gives_no_result_unless_they_are_too_long(
    why: str, server: OpenAIServer, relay: Relay
) -> None:
    server.answer = lambda _: REFUSALS[why]
    relay.answer(ROUTE, {"prompt": "one"})
    with nullcontext() if "context" in why else pytest.raises(EndpointFailed, match="every request of `sums` failed"):
        relay.check("sums")
    assert relay.failure is None


def test_a_server_that_fails_at_every_question_is_given_up_early(server: OpenAIServer, relay: Relay) -> None:
    server.answer = lambda _: Reply(status=500)
    asked = next(number for number in range(100) if relay.answer(ROUTE, {"prompt": str(number)})[0] == 503)
    assert asked + 1 == MAX_IN_A_ROW
    assert isinstance(relay.failure, EndpointFailed)


def test_repeats_have_seeds_of_their_own_and_no_task_overrules_the_suite(
    server: OpenAIServer, relay: Relay, tmp_path: Path
) -> None:
    said = {"max_tokens": 999, "max_gen_toks": 999, "temperature": 0.9, "seed": 5, "stop": ["Q:"]}
    for prompt in ("x", "x", "y", "x"):
        ask(relay, prompt, **said)
    sent = [request.body for request in server.requests]
    assert [body["seed"] for body in sent] == [0, 1, 0, 2]
    for body in sent:
        assert {"max_tokens": 16, "temperature": 0.0, "top_p": 1.0, "stop": ["Q:"]}.items() <= body.items()
        assert "max_gen_toks" not in body
    with opened(server, tmp_path) as second:
        for prompt in ("x", "x", "y", "x"):
            ask(second, prompt, **said)
    assert len(server.requests) == 4


def test_a_count_of_tokens_that_is_none_is_not_counted(server: OpenAIServer, relay: Relay) -> None:
    server.answer = lambda _: Reply(text="a", changes={"usage": "many"})
    ask(relay, "x")
    assert [o.status for o in relay.outcomes("x")] == [SampleStatus.SCORED]
    assert relay.tokens() == (None, None)


def test_answers_that_cannot_be_kept_are_no_fault_of_the_server(relay: Relay, tmp_path: Path) -> None:
    (tmp_path / "answers.jsonl").mkdir()
    assert ask(relay, "x").status_code == 503
    assert isinstance(relay.failure, StoreError)


def choices(*likelihoods: float) -> dict[str, object]:
    """Return a line of a task that compares likelihoods."""
    asked = {f"gen_args_{n}": {"arg_0": "q", "arg_1": f" {n}"} for n in range(len(likelihoods))}
    return row("q", 1.0, arguments=asked, resps=[[[str(one), "False"]] for one in likelihoods])


def test_a_refused_likelihood_is_an_error_of_its_question(server: OpenAIServer, relay: Relay, tmp_path: Path) -> None:
    server.answer = lambda _: context_overflow()
    reply = ask(relay, [1, 2, 3], echo=True).json()["choices"][0]["logprobs"]
    assert relay.failure is None
    added_up = sum(reply["token_logprobs"][2:])  # as the harness does
    write(tmp_path / "out", {"sums": [choices(-1.5, -2.5), choices(-1.5, added_up)]}, kind="multiple_choice")
    result = result_of(tmp_path / "out", BENCHMARK, suite_of(BENCHMARK), relay)
    assert [(s.status, s.score) for s in result.samples] == [(SampleStatus.SCORED, 1.0), (SampleStatus.ERROR, None)]
    assert "maximum context length" in result.samples[1].detail


def test_likelihoods_of_other_tokens_than_were_sent_are_refused(server: OpenAIServer, relay: Relay) -> None:
    found = {"token_logprobs": [None, -1.0, -2.0, -3.0], "top_logprobs": [None, {"a": -1.0}, {"b": -2.0}, {"c": -3.0}]}
    changes: dict[str, object] = {"choices.0.logprobs": found}
    server.answer = lambda _: Reply(text="a", changes=changes)
    assert ask(relay, [1, 2, 3], echo=True).status_code == 200
    for ids, said in (([1, 2], "holds 4 where 3"), ([1, 2, 3, 4], "holds 4 where 5")):  # a token in front, one less
        assert said in ask(relay, ids, echo=True).text
    assert isinstance(relay.failure, EvaluateError)
    changes["choices.0.logprobs"] = None
    assert "holds none" in ask(relay, [1, 2, 4], echo=True).text
    changes["choices.0.logprobs"] = found | {"token_logprobs": [None, -1.0, None, -3.0]}
    assert "not all in its answer are numbers" in ask(relay, [1, 2, 5], echo=True).text


def test_a_harness_that_was_updated_meanwhile_is_not_believed(relay: Relay, tmp_path: Path) -> None:
    ask(relay, "one")
    write(tmp_path / "out", {"sums": [row("one", 1.0)]}, version="0.5.0")
    with pytest.raises(ConfigError, match=r"planned with lm-eval 0\.4\.13, and lm-eval 0\.5\.0 measured it"):
        result_of(tmp_path / "out", BENCHMARK, suite_of(BENCHMARK), relay)


@pytest.mark.parametrize("first_line", ["#!{python}\n", "#!/bin/sh\n", ""], ids=["named", "a shell", "none"])
def test_the_harness_is_asked_for_its_version_where_its_command_leads(first_line: str, tmp_path: Path) -> None:
    folder = tmp_path / "tool" / "bin"
    folder.mkdir(parents=True)
    (folder / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (folder / "python").chmod(0o755)
    (folder / "lm_eval").write_text(first_line.format(python=sys.executable))
    (tmp_path / "lm_eval").symlink_to(folder / "lm_eval")
    assert installed_version(str(tmp_path / "lm_eval")) == f"lm-eval {version('lm_eval')}"


def test_no_setting_of_the_suite_is_left_to_a_default(server: OpenAIServer) -> None:
    asked = Asked(base_url="http://127.0.0.1:1", out="/out", tokenizer="/runs/lr=1e-4,wd=0/checkpoint")
    words = arguments(BENCHMARK, suite_of(BENCHMARK), endpoint_of(server), asked)
    model, generation = (json.loads(words[words.index(name) + 1]) for name in ("--model_args", "--gen_kwargs"))
    assert generation == {"temperature": 0.0, "top_p": 1.0, "max_gen_toks": 16, "seed": 0}
    assert {
        "num_concurrent": 4,
        "seed": 0,
        "tokenizer": asked.tokenizer,
        "add_bos_token": True,
    }.items() <= model.items()
    assert words[words.index("--seed") + 1] == "0,1234,1234,1234"
    assert "--limit" not in words
    assert "--trust_remote_code" not in words
