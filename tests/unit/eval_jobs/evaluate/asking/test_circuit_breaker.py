import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest

from eval_jobs.errors import EndpointFailed, EndpointRefused
from eval_jobs.evaluate.asking.circuit_breaker import CircuitBreaker, NoAnswer
from eval_jobs.evaluate.asking.failures import (
    MAX_RETRY_AFTER_S,
    FailureKind,
    classify_failure,
    describe,
    pause_s,
)
from eval_jobs.evaluate.asking.limiter import ConcurrencyLimiter, StopFlag
from eval_jobs.evaluate.common.answer_check import is_overflow
from eval_jobs.evaluate.common.protocol import RetryPolicy
from tests.fakes.openai_server import context_overflow

POLICY = RetryPolicy()
REQUEST: Any = httpx.Request("POST", "http://server/v1/chat/completions")


def status_error(status: int, message: str = "no", *, retry_after: str = "") -> openai.APIStatusError:
    headers = {"retry-after": retry_after} if retry_after else {}
    response: Any = httpx.Response(status, request=REQUEST, headers=headers)
    return openai.APIStatusError(f"Error {status}", response=response, body={"message": message})


def timed_out() -> Exception:
    """Return what openai raises where its transport gave up waiting."""
    error = openai.APITimeoutError(request=REQUEST)
    error.__cause__ = httpx.ReadTimeout("late", request=REQUEST)
    return error


def raising(*errors: Exception) -> Callable[[], str]:
    """Return a request that raises the errors one after the other and then answers."""
    left = list(errors)

    def request() -> str:
        if left:
            raise left.pop(0)
        return "answer"

    return request


def failing(error: Exception) -> Callable[[], str]:
    def request() -> str:
        raise error

    return request


class Lapse(StopFlag):
    """What a breaker waits for, on a clock that only waiting moves. `waits`: every one of them, in seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def now_s(self) -> float:
        return sum(self.waits)

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        assert timeout > 0
        if not self.is_set():
            self.waits.append(timeout)
        return self.is_set()


class Noticed(StopFlag):
    """Waits really, and lets a test know that somebody waits."""

    def __init__(self) -> None:
        super().__init__()
        self.is_waited_for = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.is_waited_for.set()
        return super().wait(timeout)


@pytest.fixture
def lapse() -> Lapse:
    return Lapse()


def breaker_of(lapse: Lapse, *, limit: int = 8, is_alive: bool = True, own_engine: bool = False) -> CircuitBreaker:
    return CircuitBreaker(
        is_alive=lambda: is_alive,
        limiter=ConcurrencyLimiter(limit, stopped=lapse),
        retry_policy=POLICY,
        own_engine=own_engine,
    )


def test_a_failed_request_is_blamed_on_the_sample_or_the_server() -> None:
    by_kind = {
        FailureKind.SAMPLE: (400, 413, 422),
        FailureKind.KEY: (401, 403),
        FailureKind.SERVER: (404,),
        FailureKind.BUSY: (429, 503),
        FailureKind.BROKEN: (500, 502, 408),
    }
    found = {
        kind: tuple(s for s in statuses if classify_failure(status_error(s)) is kind)
        for kind, statuses in by_kind.items()
    }
    assert found == by_kind
    assert classify_failure(timed_out()) is FailureKind.SLOW
    for error in (
        openai.APIConnectionError(request=REQUEST),
        ValueError("Gateway returned a response with no choices"),
    ):
        assert classify_failure(error) is FailureKind.BROKEN


def test_a_server_gets_the_rest_that_it_asks_for_within_reason() -> None:
    nothing_sensible = (
        "",
        "0",
        "-3",
        "nan",
        "inf",
        "soon",
        "Wed, 21 Oct 2015 07:28:00 GMT",
        "Wed, 99 Oct 2199 07:28:00 GMT",
    )
    expected = dict.fromkeys(nothing_sensible, 1.0) | {"7": 7.0}
    expected |= dict.fromkeys(("86400", "Wed, 21 Oct 2199 07:28:00 GMT"), MAX_RETRY_AFTER_S)
    assert {header: pause_s(status_error(429, retry_after=header), 0, POLICY) for header in expected} == expected


def test_a_refusal_for_length_is_told_from_others() -> None:
    assert all(map(is_overflow, (context_overflow().text, "This model's maximum context length is 8 tokens")))
    assert not any(map(is_overflow, ("HTTP 400: unknown parameter top_k", "")))


def test_a_short_break_is_bridged(lapse: Lapse) -> None:
    breaker = breaker_of(lapse)
    assert breaker.ask(raising(openai.APIConnectionError(request=REQUEST))) == "answer"
    assert lapse.waits == [POLICY.broken_s[0]]


def test_a_refusal_is_the_samples_and_the_breaker_lets_others_through(lapse: Lapse) -> None:
    breaker = breaker_of(lapse, limit=1, is_alive=False)
    for _ in range(10):
        with pytest.raises(NoAnswer, match="HTTP 400: no") as caught:
            breaker.ask(failing(status_error(400)))
        assert not caught.value.may_pass
    assert breaker.ask(raising()) == "answer"


@pytest.mark.parametrize(
    ("status", "own_engine", "expected"),
    [
        (401, False, EndpointRefused),
        (403, False, EndpointRefused),
        (404, False, EndpointFailed),
        (401, True, EndpointFailed),
    ],
)
def test_a_refused_key_or_model_trips_the_breaker_at_once(
    lapse: Lapse, status: int, *, own_engine: bool, expected: type[EndpointFailed | EndpointRefused]
) -> None:
    breaker = breaker_of(lapse, own_engine=own_engine)
    with pytest.raises(expected, match=f"HTTP {status}: no"):
        breaker.ask(failing(status_error(status)))
    with pytest.raises(expected):
        breaker.ask(raising())
    assert lapse.waits == []


def test_a_dead_server_trips_the_breaker_for_everybody(lapse: Lapse) -> None:
    breaker = breaker_of(lapse, is_alive=False)
    with pytest.raises(EndpointFailed, match="Connection error"):
        breaker.ask(failing(openai.APIConnectionError(request=REQUEST)))
    assert lapse.waits == list(POLICY.broken_s)
    with pytest.raises(EndpointFailed):
        breaker.ask(raising())


def test_a_slow_sample_on_a_live_server_is_not_asked_again_at_once_and_not_the_end(lapse: Lapse) -> None:
    breaker = breaker_of(lapse, limit=3)
    asked = []

    def request() -> str:
        asked.append(1)
        raise timed_out()

    with pytest.raises(NoAnswer) as caught:
        breaker.ask(request)
    assert caught.value.may_pass
    assert len(asked) == 1
    assert breaker.ask(raising()) == "answer"


def trip_by_three(breaker: CircuitBreaker, request: Callable[[], str], words: str = "") -> None:
    for _ in range(2):
        with pytest.raises(NoAnswer):
            breaker.ask(request)
    with pytest.raises(EndpointFailed, match=f"3 consecutive requests failed{words}"):
        breaker.ask(request)


def test_failures_in_a_row_trip_the_breaker_of_a_server_that_never_answered(lapse: Lapse) -> None:
    trip_by_three(breaker_of(lapse, limit=3), failing(timed_out()), ", the last with APITimeoutError")


def test_failures_in_a_row_trip_the_breaker_when_what_was_answered_before_fails_too(lapse: Lapse) -> None:
    breaker = breaker_of(lapse, limit=3)
    broken = timed_out()
    answers = iter(["answer"])

    def request() -> str:
        for answer in answers:
            return answer
        raise broken

    assert breaker.ask(request) == "answer"
    trip_by_three(breaker, failing(broken))


def test_failures_in_a_row_are_the_samples_own_when_what_was_answered_before_still_is(lapse: Lapse) -> None:
    breaker = breaker_of(lapse, limit=3)
    breaker.ask(raising())
    for _ in range(20):
        with pytest.raises(NoAnswer) as caught:
            breaker.ask(failing(timed_out()))
        assert caught.value.may_pass
    assert breaker.error is None


def test_a_busy_server_is_asked_on_as_long_as_it_serves_others(lapse: Lapse) -> None:
    breaker = breaker_of(lapse, limit=3)
    tries = []

    def crowded() -> str:
        tries.append(1)
        if len(tries) == 30:
            return "answer"
        breaker.ask(raising())
        raise status_error(429)

    assert breaker.ask(crowded) == "answer"
    assert lapse.waits == [*POLICY.busy_s, *[POLICY.busy_s[-1]] * 26]


def test_a_server_that_is_busy_and_serves_nobody_trips_the_breaker(lapse: Lapse) -> None:
    breaker = breaker_of(lapse, limit=3)
    tries = []

    def busy() -> str:
        tries.append(1)
        raise status_error(503, "loading")

    with pytest.raises(EndpointFailed, match="HTTP 503: loading"):
        breaker.ask(busy)
    assert len(tries) == 4
    assert lapse.waits == list(POLICY.busy_s)


def test_a_tripped_breaker_wakes_those_who_wait_for_their_next_try() -> None:
    stopped, in_flight = Noticed(), threading.Event()
    limiter = ConcurrencyLimiter(8, stopped=stopped)
    breaker = CircuitBreaker(is_alive=lambda: True, limiter=limiter, retry_policy=POLICY)

    def refused_while_another_waits() -> str:
        in_flight.set()
        assert stopped.is_waited_for.wait(timeout=60)
        raise status_error(404)

    def busy() -> str:
        assert in_flight.wait(timeout=60)
        raise status_error(429, retry_after="60")

    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(breaker.ask, request) for request in (refused_while_another_waits, busy)]
        for answer in asked:
            with pytest.raises(EndpointFailed):
                answer.result(timeout=120)


def test_the_servers_own_words_are_shown() -> None:
    assert describe(status_error(400, "too long")) == "HTTP 400: too long"
    broken = openai.APIConnectionError(request=REQUEST)
    broken.__cause__ = httpx.ConnectError("Connection refused")
    assert describe(broken) == "APIConnectionError: Connection error. (Connection refused)"
