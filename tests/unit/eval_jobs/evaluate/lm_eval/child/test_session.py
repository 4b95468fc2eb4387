"""What the harness asks, over a scripted server: what is sent, what counts as an answer, and what is kept."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from eval_jobs.errors import EndpointFailed, EvaluateError, StoreError
from eval_jobs.evaluate.common.protocol import Message
from eval_jobs.evaluate.common.task_config import evaluate_request
from eval_jobs.evaluate.lm_eval.child.session import HarnessRequest, Session
from eval_jobs.evaluate.lm_eval.command import child_task
from eval_jobs.evaluate.lm_eval.outcomes import Outcomes, RequestOutcome
from eval_jobs.types import Benchmark, Program, SampleStatus
from tests.evaluating import AT_ONCE, endpoint_of, suite_of
from tests.fakes.openai_server import Fault, OpenAIServer, Reply, context_overflow

BENCHMARK = Benchmark(name="sums", adapter="sums", program=Program(name="lm-eval", command="lm_eval"))
GONE = (EndpointFailed, r"failed after \d+ of \d+ samples")


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(lambda _: Reply(text="a")) as server:
        yield server


def opened(server: OpenAIServer, folder: Path, *, timeout_s: float = 20.0) -> Session:
    """Return a session that keeps what is answered in `folder`."""
    suite, endpoint = suite_of(BENCHMARK, concurrency=1, request_timeout_s=timeout_s), endpoint_of(server)
    request: Message = dict(evaluate_request(suite, endpoint, [child_task(BENCHMARK, suite, endpoint, folder=folder)]))
    return Session(request | {"retry_policy": asdict(AT_ONCE)}, lambda _: None, key="EMPTY")


def ask(session: Session, *prompts: object, **more: object) -> list[dict[str, Any] | None]:
    """Ask as the harness does, each prompt for the sample of its position."""
    return session.ask([HarnessRequest(body={"prompt": p} | more, place=("sums", n)) for n, p in enumerate(prompts)])


def texts(session: Session, *prompts: object) -> list[str]:
    return [reply["choices"][0]["text"] if reply else "" for reply in ask(session, *prompts)]


def outcomes(session: Session, folder: Path, prompts: Sequence[object]) -> list[RequestOutcome]:
    """Ask, and return what became of each."""
    ask(session, *prompts)
    session.finish()
    found = Outcomes.read(folder)
    return [one for number in range(len(prompts)) for one in found.of("sums", number)]


def test_answers_outlive_the_session_in_order_and_half_a_line_is_asked_again(
    server: OpenAIServer, tmp_path: Path
) -> None:
    answers = iter("abc")
    server.answer = lambda _: Reply(text=next(answers))
    with opened(server, tmp_path) as session:
        assert sorted(texts(session, "x", "x")) == ["a", "b"]
        said = texts(session)
    with opened(server, tmp_path) as session:
        said = texts(session, "x", "x")
    with (tmp_path / "answers.jsonl").open("a") as file:
        file.write('{"key": "half')
    for _ in range(2):
        with opened(server, tmp_path) as second:
            assert texts(second, "x", "x") == said
            assert len(server.requests) == 2
            found = outcomes(second, tmp_path, [])
            assert found == []
            assert [o.status for o in Outcomes.read(tmp_path).of("sums", 1)] == [SampleStatus.SCORED]


FAULTS: dict[str, Reply] = {
    "refused": context_overflow(),
    "no JSON": Reply(fault=Fault.GARBAGE),
    "half an answer": Reply(text="a", fault=Fault.CUT),
    "500 while it lives": Reply(status=500, text="oops"),
    "cut by an engine that is stopped": Reply(text="a", finish_reason="abort"),
    "no word on how it ended": Reply(text="a", finish_reason=None),
    "filtered": Reply(text="a", finish_reason="content_filter"),
    "too late": Reply(text="a", first_token_delay_s=1.0),
    "no text": Reply(text="a", changes={"choices.0.text": None}),
    "a body that is a list": Reply(text="a", changes={"choices": []}),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_question_without_an_answer_is_an_error_of_its_own(fault: str, server: OpenAIServer, tmp_path: Path) -> None:
    server.answer = lambda request: FAULTS[fault] if request.prompt == "x" else Reply(text="a")
    good = [str(number) for number in range(10)]
    with opened(server, tmp_path, timeout_s=0.3 if fault == "too late" else 20.0) as session:
        found = outcomes(session, tmp_path, [*good, "x"])
    assert [o.status for o in found] == [SampleStatus.SCORED] * 10 + [SampleStatus.ERROR]
    assert found[-1].detail


def test_a_server_that_is_gone_ends_it(server: OpenAIServer, tmp_path: Path) -> None:
    with opened(server, tmp_path) as session:
        server.stop()
        with pytest.raises(GONE[0], match=GONE[1]):
            ask(session, "x")


def test_where_a_fifth_of_the_questions_fail_there_is_no_result_until_the_same_ones_fail_again(
    server: OpenAIServer, tmp_path: Path
) -> None:
    server.answer = lambda request: Reply(status=500) if request.prompt in {"3", "4"} else Reply(text="a")
    prompts = [str(number) for number in range(10)]
    with opened(server, tmp_path) as session:
        ask(session, *prompts)
        with pytest.raises(EndpointFailed, match=r"2 of 10 requests of `sums`"):
            session.finish()
    answered = len(server.requests)
    with opened(server, tmp_path) as second:
        statuses = [one.status for one in outcomes(second, tmp_path, prompts)]
    assert statuses.count(SampleStatus.ERROR) == 2
    assert {request.prompt for request in server.requests[answered:]} == {"0", "3", "4"}, "one shows that it lives"


REFUSALS = {"a context that is too small": context_overflow(), "an API that is not there": Reply(status=400, text="no")}


@pytest.mark.parametrize("why", REFUSALS)
def test_a_server_that_refuses_every_question_gives_no_result_unless_they_are_too_long(
    why: str, server: OpenAIServer, tmp_path: Path
) -> None:
    server.answer = lambda _: REFUSALS[why]
    with opened(server, tmp_path) as session:
        ask(session, "one")
        with (
            nullcontext() if "context" in why else pytest.raises(EndpointFailed, match="every request of `sums` failed")
        ):
            session.finish()


def test_a_server_that_fails_at_every_question_is_given_up_early(server: OpenAIServer, tmp_path: Path) -> None:
    server.answer = lambda _: Reply(status=500)
    with opened(server, tmp_path) as session, pytest.raises(GONE[0], match=GONE[1]):
        ask(session, *map(str, range(100)))
    assert len({request.prompt for request in server.requests}) < 10


def test_repeats_have_seeds_of_their_own_and_no_task_overrules_the_suite(server: OpenAIServer, tmp_path: Path) -> None:
    said: dict[str, object] = {
        "max_tokens": 999, "max_gen_toks": 999, "temperature": 0.9, "seed": 5, "stop": ["Q:"],
    }  # fmt: skip
    with opened(server, tmp_path) as session:
        for prompt in ("x", "x", "y", "x"):
            ask(session, prompt, **said)
    sent = [request.body for request in server.requests]
    assert [body["seed"] for body in sent] == [0, 1, 0, 2]
    for body in sent:
        assert {"max_tokens": 16, "temperature": 0.0, "top_p": 1.0, "stop": ["Q:"]}.items() <= body.items()
        assert "max_gen_toks" not in body
    with opened(server, tmp_path) as second:
        ask(second, "x", "x", "y", "x", **said)
    assert len(server.requests) == 4


def test_a_count_of_tokens_that_is_none_is_not_counted(server: OpenAIServer, tmp_path: Path) -> None:
    server.answer = lambda _: Reply(text="a", changes={"usage": "many"})
    with opened(server, tmp_path) as session:
        (found,) = outcomes(session, tmp_path, ["x"])
    assert found == RequestOutcome(status=SampleStatus.SCORED)
    assert Outcomes.read(tmp_path).tokens() == (None, None)


def test_answers_that_cannot_be_kept_are_no_fault_of_the_server(server: OpenAIServer, tmp_path: Path) -> None:
    (tmp_path / "answers.jsonl").mkdir()
    with opened(server, tmp_path) as session, pytest.raises(StoreError):
        ask(session, "x")


def test_likelihoods_of_other_tokens_than_were_sent_are_refused(server: OpenAIServer, tmp_path: Path) -> None:
    found = {"token_logprobs": [None, -1.0, -2.0, -3.0], "top_logprobs": [None, {"a": -1.0}, {"b": -2.0}, {"c": -3.0}]}
    changes: dict[str, object] = {"choices.0.logprobs": found}
    server.answer = lambda _: Reply(text="a", changes=changes)

    def error_of(*ids: int) -> str:
        with opened(server, tmp_path) as session, pytest.raises(EvaluateError) as caught:
            ask(session, [list(ids)], echo=True)
        return caught.value.message

    with opened(server, tmp_path) as session:
        assert ask(session, [[1, 2, 3]], echo=True) != [None]
    for ids, said in (
        ((1, 2), r"4 in its response (expected 3)"),
        ((1, 2, 3, 4), "4 in its response (expected 5)"),
    ):  # a token in front, one less
        assert said in error_of(*ids)
    changes["choices.0.logprobs"] = None
    assert "none in its response" in error_of(1, 2, 4)
    changes["choices.0.logprobs"] = found | {"token_logprobs": [None, -1.0, None, -3.0]}
    assert "some in its response are not numbers" in error_of(1, 2, 5)
