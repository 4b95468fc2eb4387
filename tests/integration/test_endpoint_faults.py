"""The real evaluator against an endpoint that answers badly: asked again, resumed, and never a wrong answer."""

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from eval_jobs.errors import EndpointFailed, EndpointRefused, EvaluatorDied
from eval_jobs.evaluate.evalscope.evaluator import EvalScopeEvaluator
from eval_jobs.types import EvalResult, SampleStatus
from tests.evaluating import (
    AT_ONCE,
    ask,
    by_number,
    child_pid,
    endpoint_of,
    evaluate_one,
    number_of,
    right,
    suite_of,
    sums,
)
from tests.fakes.openai_server import Fault, OpenAIServer, Reply, Request, context_overflow

COUNT = 20
HTML = b"<html><body>502 Bad Gateway</body></html>"
ERROR = {"message": "EngineCore encountered an issue.", "type": "InternalServerError", "code": 500}

TWO = [{"index": 1 - number, "finish_reason": "stop", "message": {"content": "4"}} for number in range(2)]

BUSY: dict[str, Reply] = {
    "429": Reply(status=429, text="slow down"),
    "429 with Retry-After": Reply(status=429, text="slow down", headers=(("Retry-After", "1"),)),
    "503": Reply(status=503, text="loading"),
}
BROKEN: dict[str, tuple[Reply, str]] = {
    "500": (Reply(status=500, text="worker crashed"), "HTTP 500: worker crashed"),
    "502": (Reply(status=502, text="bad gateway"), "HTTP 502"),
    "closed": (Reply(fault=Fault.CLOSE), "APIConnectionError"),
    "reset": (Reply(fault=Fault.RESET), "reset"),
    "cut": (Reply(text="1 2 3", fault=Fault.CUT), "APIConnectionError"),
    "no JSON": (Reply(fault=Fault.GARBAGE), "JSONDecodeError"),
    "HTML page with 200": (Reply(raw=HTML, content_type="text/html"), "RuntimeError"),
    "a stream that nobody asked for": (Reply(raw=b"data: {}\n\n", content_type="text/event-stream"), "RuntimeError"),
    "JSON null": (Reply(raw=b"null"), "TypeError"),
    "JSON list": (Reply(raw=b"[]"), "RuntimeError"),
    "JSON text": (Reply(raw=b'"4"'), "RuntimeError"),
    "two bodies": (Reply(raw=b'{"id": "a"}{"id": "b"}'), "Extra data"),
    "invalid UTF-8": (Reply(raw=b'{"choices": [{"message": {"content": "\xff"}}]}'), "UnicodeDecodeError"),
    "no choices": (Reply(raw=b'{"id": "x", "object": "chat.completion"}'), "no choices"),
    "empty choices": (Reply(changes={"choices": []}), "no choices"),
    "no message": (Reply(changes={"choices.0.message": None}), "no message"),
    "null content": (Reply(changes={"choices.0.message.content": None}), "no content"),
    "content that is no text": (Reply(changes={"choices.0.message.content": 4}), "content is not text: 4"),
    "error object with 200": (Reply(raw=b'{"error": {"message": "EngineCore died", "code": 500}}'), "EngineCore died"),
    "error beside an answer": (Reply(text="4", changes={"error": ERROR}), "EngineCore encountered an issue"),
    "no finish_reason": (Reply(text="60", finish_reason=None), "unexpected finish_reason None"),
    "two choices": (Reply(changes={"choices": TWO}), "2 choices"),
    "many choices": (Reply(changes={"choices": TWO * 200}), "400 choices"),
    "a list as finish_reason": (Reply(text="60", changes={"choices.0.finish_reason": ["stop"]}), "finish_reason"),
    "20 MB": (Reply(text="4" * 20_000_000), "response exceeds"),
    "stopped in the middle": (Reply(text="60", finish_reason="abort"), "unexpected finish_reason abort"),
}
SLOW: dict[str, tuple[Reply, str]] = {
    "no byte": (Reply(fault=Fault.HANG), "APITimeoutError"),
    "one byte": (Reply(fault=Fault.SILENCE), "APITimeoutError"),
    "a body without end": (Reply(fault=Fault.ENDLESS), "APITimeoutError"),
}
REFUSED: dict[str, tuple[Reply, str]] = {
    "overflow": (context_overflow(), "HTTP 400: This model's maximum context length is 128 tokens"),
    "NaN": (Reply(status=400, text="Out of range float values are not JSON compliant"), "Out of range float"),
    "422": (Reply(status=422, text="no such role"), "HTTP 422: no such role"),
}
FILTERED = Reply(text="68", finish_reason="content_filter")

SLOW_TIMEOUT_S = 3.0
"""Whatever else a busy machine does not answer in that time is asked again too."""
Times = Callable[[Request], Reply | None]


@pytest.fixture(scope="module")
def evaluator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EvalScopeEvaluator]:
    evaluator = EvalScopeEvaluator(tmp_path_factory.mktemp("endpoint"), retry_policy=AT_ONCE)
    yield evaluator
    evaluator.close()


@pytest.fixture
def plan_id(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def undisturbed(evaluator: EvalScopeEvaluator, folder: Path, count: int, plan_id: str) -> EvalResult:
    with OpenAIServer(right) as server:
        result = ask(evaluator, server, sums(folder, count), plan_id=f"{plan_id} undisturbed")
        assert len(server.requests) == count
    assert {sample.score for sample in result.samples} == {1.0}
    return result


def faulty(faults: dict[int, Reply], *, times: int | None = None) -> Callable[[Request], Reply]:
    """Answer the questions in `faults` badly, for ever or so many times, and all others rightly."""
    seen: Counter[int] = Counter()

    def answer(request: Request) -> Reply:
        number = number_of(request)
        seen[number] += 1
        return faults[number] if number in faults and (times is None or seen[number] <= times) else right(request)

    return answer


def test_after_every_fault_that_passes_the_result_is_that_of_an_undisturbed_server(
    evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str
) -> None:
    replies = [*BUSY.values(), *(reply for reply, _ in BROKEN.values())]
    faults = {3 * number: reply for number, reply in enumerate(replies)}
    count = 3 * len(faults)
    with OpenAIServer(faulty(faults, times=1)) as server:
        suite = suite_of(sums(tmp_path, count), concurrency=16)
        result = evaluate_one(evaluator, suite, endpoint_of(server), plan_id=plan_id)
        asked = Counter(map(number_of, server.requests))
    assert result.samples == undisturbed(evaluator, tmp_path, count, plan_id).samples
    assert {number: asked[number] for number in faults} == dict.fromkeys(faults, 2)
    assert sum(asked[number] for number in range(count) if number not in faults) - (count - len(faults)) <= 2, (
        "nothing else is asked twice, but for what shows that the server still answers"
    )


def test_after_answers_that_took_too_long_once_the_result_is_that_of_an_undisturbed_server(
    evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str
) -> None:
    faults = {4 * number: reply for number, (reply, _) in enumerate(SLOW.values())}
    with OpenAIServer(faulty(faults, times=1)) as server:
        suite = suite_of(sums(tmp_path, COUNT), request_timeout_s=SLOW_TIMEOUT_S)
        result = evaluate_one(evaluator, suite, endpoint_of(server), plan_id=plan_id)
        asked = Counter(map(number_of, server.requests))
    assert result.samples == undisturbed(evaluator, tmp_path, COUNT, plan_id).samples
    assert all(asked[number] >= 2 for number in faults)


def test_questions_whose_answers_always_take_too_long_are_errors_after_three_tries(
    evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str
) -> None:
    faults = {12 * number: case for number, case in enumerate(SLOW.values())}
    with OpenAIServer(faulty({number: reply for number, (reply, _) in faults.items()})) as server:
        suite = suite_of(sums(tmp_path, 12 * len(faults)), request_timeout_s=SLOW_TIMEOUT_S)
        samples = by_number(evaluate_one(evaluator, suite, endpoint_of(server), plan_id=plan_id))
        asked = Counter(map(number_of, server.requests))
    for number, (_, detail) in faults.items():
        assert (samples[number].status, samples[number].score) == (SampleStatus.ERROR, None), detail
        assert detail in samples[number].detail
        assert asked[number] == 3, detail


def test_a_question_that_always_fails_is_an_error_and_the_rest_is_scored(
    evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str
) -> None:
    """Nine tries of what breaks, one of what is refused."""
    cases = [(*case, tries) for kind, tries in ((BROKEN, 9), (REFUSED, 1)) for case in kind.values()]
    faults = {12 * number: case for number, case in enumerate([*cases, (FILTERED, "the server filtered", 1)])}
    count = 12 * len(faults)
    with OpenAIServer(faulty({number: reply for number, (reply, _, _) in faults.items()})) as server:
        suite = suite_of(sums(tmp_path, count), concurrency=16)
        result = evaluate_one(evaluator, suite, endpoint_of(server), plan_id=plan_id)
        asked = Counter(map(number_of, server.requests))
    samples = by_number(result)
    assert len(samples) == count
    for number, (_, detail, tries) in faults.items():
        found = samples[number]
        assert (found.status, found.score, found.answer) == (SampleStatus.ERROR, None, ""), detail
        assert detail in found.detail
        assert asked[number] == tries, detail
    assert {samples[number].score for number in samples if number not in faults} == {1.0}


def test_questions_that_always_fail_and_are_many_cost_one_more_evaluation_and_not_the_benchmark(
    evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str
) -> None:
    benchmark = sums(tmp_path, COUNT)
    poison = {number: Reply(status=500, text="worker crashed") for number in range(8)}
    with OpenAIServer(faulty(poison)) as server:
        with pytest.raises(EndpointFailed, match=f"8 of {COUNT} requests of `sums` got no") as caught:
            ask(evaluator, server, benchmark, plan_id=plan_id)
        server.requests.clear()
        result = ask(evaluator, server, benchmark, plan_id=plan_id)
        assert len(set(map(number_of, server.requests)) - set(poison)) <= 1, "only to see whether it lives"
    assert caught.value.retryable
    samples = by_number(result)
    assert {samples[number].status for number in poison} == {SampleStatus.ERROR}
    assert {samples[number].score for number in samples if number not in poison} == {1.0}


def test_impossible_token_counts_and_characters_do_not_cost_the_answer(
    evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str
) -> None:
    usages = [{"prompt_tokens": 10**30, "completion_tokens": 1, "total_tokens": 10**30}, {"prompt_tokens": "8"}, [8]]
    odd = {number: {"usage": usage} for number, usage in enumerate(usages)}
    texts = {number: {"choices.0.message.content": f"{number + 1}{end}"} for number, end in ((3, "\ud83d"), (4, "\0"))}
    ids = {5: {"id": "\ud83d", "created": 10**30}}
    changes = odd | texts | ids

    def answer(request: Request) -> Reply:
        return replace(right(request), changes=changes.get(number_of(request)))

    with OpenAIServer(answer) as server:
        result = ask(evaluator, server, sums(tmp_path, 10), plan_id=plan_id)
        assert len(server.requests) == 10
    samples = by_number(result)
    assert {number: samples[number].score for number in samples} == {n: float(n not in texts) for n in range(10)}
    assert [samples[number].output_tokens for number in odd] == [None] * len(odd)
    assert [samples[number].answer for number in texts] == ["4\ufffd", "5\ufffd"]
    assert result.input_tokens == 8 * (10 - len(odd))


def test_an_endpoint_that_redirects_to_another_host_gets_no_prompt_there_and_no_score(
    evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str
) -> None:
    with OpenAIServer(right) as other:
        moved = Reply(status=307, headers=(("Location", f"{other.base_url}/chat/completions"),))
        with (
            OpenAIServer(lambda _: moved) as server,
            pytest.raises(EndpointFailed, match=rf"redirects to another host, http://127\.0\.0\.1:{other.port}"),
        ):
            ask(evaluator, server, sums(tmp_path, COUNT), plan_id=plan_id)
        assert other.requests == []


def test_many_failures_that_pass_leave_no_trace(evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str) -> None:
    benchmark = sums(tmp_path, COUNT)
    poison = {number: Reply(status=500, text="worker crashed") for number in range(3)}
    with OpenAIServer(faulty(poison)) as server, pytest.raises(EndpointFailed):
        ask(evaluator, server, benchmark, plan_id=plan_id)
    with OpenAIServer(right) as server:
        result = ask(evaluator, server, benchmark, plan_id=plan_id)
        assert sorted(map(number_of, server.requests)) == [0, 1, 2]
    assert result.samples == undisturbed(evaluator, tmp_path, COUNT, plan_id).samples


def test_questions_that_always_fail_do_not_stop_an_evaluation_that_is_resumed_at_them(
    evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str
) -> None:
    """Nothing was answered since the child was started anew: what was answered before shows that the server lives."""
    benchmark = sums(tmp_path, 60)
    last_by_prompt = range(6, 10)
    poison = {number: Reply(status=500, text="worker crashed") for number in last_by_prompt}

    def kill(request: Request) -> Reply:
        if number_of(request) in poison:
            os.kill(child_pid(evaluator) or 0, signal.SIGKILL)
        return right(request)

    with OpenAIServer(kill) as server, pytest.raises(EvaluatorDied):
        ask(evaluator, server, benchmark, plan_id=plan_id)
    with OpenAIServer(faulty(poison)) as server:
        samples = by_number(ask(evaluator, server, benchmark, plan_id=plan_id))
        asked = set(map(number_of, server.requests))
    assert {number for number in samples if samples[number].status is SampleStatus.ERROR} == set(poison)
    # Four in flight, and six threads that may each hold one that is not written down yet.
    assert len(asked - set(poison)) <= 5 + 1, "and one to see whether the server lives"


def test_a_server_that_dies_in_the_middle_and_comes_back_is_asked_for_the_rest(
    evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str
) -> None:
    benchmark = sums(tmp_path, COUNT)
    suite = suite_of(benchmark)

    def die(request: Request) -> Reply:
        if request.number >= 10:
            server.stop()
        return right(request)

    with OpenAIServer(die) as server:
        endpoint = endpoint_of(server)
        with pytest.raises(EndpointFailed, match=r"failed after \d+ of \d+ samples of") as caught:
            evaluate_one(evaluator, suite, endpoint, plan_id=plan_id)
    assert caught.value.retryable
    with pytest.raises(EndpointFailed, match="Connection refused"):
        evaluate_one(evaluator, suite, endpoint, plan_id=plan_id)
    with OpenAIServer(right, port=server.port) as back:
        result = evaluate_one(evaluator, suite, endpoint, plan_id=plan_id)
        assert len(back.requests) <= COUNT - 7
    assert result.samples == undisturbed(evaluator, tmp_path, COUNT, plan_id).samples


def test_a_busy_server_is_not_stormed(evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str) -> None:
    """Four at once are turned away; everybody waits, and then each asks once more."""

    def answer(request: Request) -> Reply:
        return BUSY["429 with Retry-After"] if request.number < 4 else right(request)

    with OpenAIServer(answer) as server:
        result = ask(evaluator, server, sums(tmp_path, COUNT), plan_id=plan_id)
        assert len(server.requests) == COUNT + 4
    assert result.samples == undisturbed(evaluator, tmp_path, COUNT, plan_id).samples


@pytest.mark.parametrize(
    ("status", "expected", "retryable"),
    [(401, EndpointRefused, False), (403, EndpointRefused, False), (404, EndpointFailed, True)],
)
def test_a_server_that_denies_access_gets_one_request_per_thread_and_its_reason_is_reported(
    evaluator: EvalScopeEvaluator, tmp_path: Path, status: int, expected: type[Exception], *, retryable: bool
) -> None:
    with OpenAIServer(lambda _: Reply(status=status, text="not you")) as server:
        with pytest.raises(expected, match=f"HTTP {status}: not you") as caught:
            ask(evaluator, server, sums(tmp_path, COUNT), plan_id=f"status {status}")
        assert len(server.requests) <= 4
    assert getattr(caught.value, "retryable", None) is retryable


def test_what_answers_in_the_place_of_our_engine_is_not_scored(
    evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str
) -> None:
    """It died, and another server that takes any name was started at its port."""
    benchmark = sums(tmp_path, COUNT)

    def answer(request: Request) -> Reply:
        reply = right(request)
        return replace(reply, changes={"model": "somebody-elses"}) if request.number >= 10 else reply

    with OpenAIServer(answer) as server:
        ours = endpoint_of(server)
        ours = replace(ours, info=replace(ours.info, name="vllm"))
        with pytest.raises(EndpointFailed, match="is from model 'somebody-elses'") as caught:
            evaluate_one(evaluator, suite_of(benchmark), ours, plan_id=plan_id)
    assert caught.value.retryable


def test_answers_to_other_questions_are_not_taken_over(
    evaluator: EvalScopeEvaluator, tmp_path: Path, plan_id: str
) -> None:
    """EvalScope knows its samples by their position: a plan that changed under a half-done evaluation starts anew."""
    benchmark = sums(tmp_path, 5)
    with OpenAIServer(right) as server:
        ask(evaluator, server, benchmark, plan_id=plan_id)
        planned = next(path for path in evaluator.work_dir.rglob("planned.jsonl") if plan_id in str(path))
        lines = planned.read_text().splitlines(keepends=True)
        planned.write_text("".join(reversed(lines)))
        server.requests.clear()
        result = ask(evaluator, server, benchmark, plan_id=plan_id)
        assert sorted(map(number_of, server.requests)) == [0, 1, 2, 3, 4]
    assert {sample.score for sample in result.samples} == {1.0}
