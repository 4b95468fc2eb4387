from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest

from eval_jobs.errors import EndpointFailed, EndpointRefused
from eval_jobs.evaluate.common.answer_check import is_overflow
from eval_jobs.evaluate.common.pauses import Pauses
from eval_jobs.evaluate.evalscope.child.answering import Gate, NoAnswer
from eval_jobs.evaluate.evalscope.child.blame import (
    MAX_RETRY_AFTER_S,
    Blame,
    blame,
    describe,
    pause_s,
)
from eval_jobs.evaluate.evalscope.child.slots import Closed, Slots
from tests.fakes.openai_server import context_overflow

PAUSES = Pauses()
REQUEST: Any = httpx.Request("POST", "http://server/v1/chat/completions")


def status_error(status: int, message: str = "no", *, retry_after: str = "") -> openai.APIStatusError:
    headers = {"retry-after": retry_after} if retry_after else {}
    response: Any = httpx.Response(status, request=REQUEST, headers=headers)
    return openai.APIStatusError(f"Error {status}", response=response, body={"message": message})


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


class Lapse(Closed):
    """What a gate waits for, on a clock of its own that only waiting moves. `waits`: every one of them, in seconds."""

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


class Noticed(Closed):
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


def gate_of(lapse: Lapse, *, limit: int = 8, is_alive: bool = True, own_engine: bool = False) -> Gate:
    return Gate(is_alive=lambda: is_alive, slots=Slots(limit, closed=lapse), own_engine=own_engine)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (status_error(400), Blame.SAMPLE),
        (status_error(413), Blame.SAMPLE),
        (status_error(422), Blame.SAMPLE),
        (status_error(401), Blame.KEY),
        (status_error(403), Blame.KEY),
        (status_error(404), Blame.SERVER),
        (status_error(429), Blame.BUSY),
        (status_error(503), Blame.BUSY),
        (status_error(500), Blame.BROKEN),
        (status_error(502), Blame.BROKEN),
        (status_error(408), Blame.BROKEN),
        (openai.APIConnectionError(request=REQUEST), Blame.BROKEN),
        (openai.APITimeoutError(request=REQUEST), Blame.SLOW),
        (ValueError("Gateway returned a response with no choices"), Blame.BROKEN),
    ],
)
def test_a_failed_request_is_blamed_on_the_sample_or_the_server(error: Exception, expected: Blame) -> None:
    assert blame(error) is expected


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("", 1.0),
        ("7", 7.0),
        ("0", 1.0),
        ("-3", 1.0),
        ("nan", 1.0),
        ("inf", MAX_RETRY_AFTER_S),
        ("86400", MAX_RETRY_AFTER_S),
        ("soon", 1.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 1.0),
        ("Wed, 21 Oct 2199 07:28:00 GMT", MAX_RETRY_AFTER_S),
        ("Wed, 99 Oct 2199 07:28:00 GMT", 1.0),
    ],
)
def test_a_server_gets_the_rest_that_it_asks_for_within_reason(header: str, seconds: float) -> None:
    assert pause_s(status_error(429, retry_after=header), 0, PAUSES) == seconds


def test_a_short_break_is_bridged(lapse: Lapse) -> None:
    gate = gate_of(lapse)
    assert gate.ask(raising(openai.APIConnectionError(request=REQUEST))) == "answer"
    assert lapse.waits == [PAUSES.broken_s[0]]


def test_a_refusal_is_the_samples_and_the_gate_stays_open(lapse: Lapse) -> None:
    gate = gate_of(lapse, limit=1, is_alive=False)
    for _ in range(10):
        with pytest.raises(NoAnswer, match="HTTP 400: no") as caught:
            gate.ask(failing(status_error(400)))
        assert not caught.value.may_pass
    assert gate.ask(raising()) == "answer"


@pytest.mark.parametrize(
    ("status", "own_engine", "expected"),
    [
        (401, False, EndpointRefused),
        (403, False, EndpointRefused),
        (404, False, EndpointFailed),
        (401, True, EndpointFailed),
    ],
)
def test_a_refused_key_or_model_closes_the_gate_at_once(
    lapse: Lapse, status: int, *, own_engine: bool, expected: type[EndpointFailed | EndpointRefused]
) -> None:
    gate = gate_of(lapse, own_engine=own_engine)
    with pytest.raises(expected, match=f"HTTP {status}: no"):
        gate.ask(failing(status_error(status)))
    with pytest.raises(expected):
        gate.ask(raising())
    assert lapse.waits == []


def test_a_dead_server_closes_the_gate_for_everybody(lapse: Lapse) -> None:
    gate = gate_of(lapse, is_alive=False)
    with pytest.raises(EndpointFailed, match="Connection error"):
        gate.ask(failing(openai.APIConnectionError(request=REQUEST)))
    assert lapse.waits == list(PAUSES.broken_s)
    with pytest.raises(EndpointFailed):
        gate.ask(raising())


def test_a_slow_sample_on_a_live_server_is_not_asked_again_at_once_and_not_the_end(lapse: Lapse) -> None:
    gate = gate_of(lapse, limit=3)
    asked = []

    def request() -> str:
        asked.append(1)
        raise openai.APITimeoutError(request=REQUEST)

    with pytest.raises(NoAnswer) as caught:
        gate.ask(request)
    assert caught.value.may_pass
    assert len(asked) == 1
    assert gate.ask(raising()) == "answer"


def test_failures_in_a_row_close_the_gate_of_a_server_that_never_answered(lapse: Lapse) -> None:
    gate = gate_of(lapse, limit=3)
    slow = failing(openai.APITimeoutError(request=REQUEST))
    for _ in range(2):
        with pytest.raises(NoAnswer):
            gate.ask(slow)
    with pytest.raises(EndpointFailed, match="3 requests in a row failed, the last one with APITimeoutError"):
        gate.ask(slow)


def test_failures_in_a_row_close_the_gate_when_what_was_answered_before_fails_too(lapse: Lapse) -> None:
    gate = gate_of(lapse, limit=3)
    broken = openai.APITimeoutError(request=REQUEST)
    answers = iter(["answer"])

    def request() -> str:
        for answer in answers:
            return answer
        raise broken

    assert gate.ask(request) == "answer"
    for _ in range(2):
        with pytest.raises(NoAnswer):
            gate.ask(failing(broken))
    with pytest.raises(EndpointFailed, match="3 requests in a row failed"):
        gate.ask(failing(broken))


def test_failures_in_a_row_are_the_samples_own_when_what_was_answered_before_still_is(lapse: Lapse) -> None:
    gate = gate_of(lapse, limit=3)
    gate.ask(raising())
    for _ in range(20):
        with pytest.raises(NoAnswer) as caught:
            gate.ask(failing(openai.APITimeoutError(request=REQUEST)))
        assert caught.value.may_pass
    assert gate.error is None


def test_a_busy_server_is_asked_on_as_long_as_it_serves_others(lapse: Lapse) -> None:
    gate = gate_of(lapse, limit=3)
    tries = []

    def crowded() -> str:
        tries.append(1)
        if len(tries) == 30:
            return "answer"
        gate.ask(raising())
        raise status_error(429)

    assert gate.ask(crowded) == "answer"
    assert lapse.waits == [*PAUSES.busy_s, *[PAUSES.busy_s[-1]] * 26]


def test_a_server_that_is_busy_and_serves_nobody_closes_the_gate(lapse: Lapse) -> None:
    gate = gate_of(lapse, limit=3)
    tries = []

    def busy() -> str:
        tries.append(1)
        raise status_error(503, "loading")

    with pytest.raises(EndpointFailed, match="HTTP 503: loading"):
        gate.ask(busy)
    assert len(tries) == 4
    assert lapse.waits == list(PAUSES.busy_s)


def test_a_closed_gate_wakes_those_who_wait_for_their_next_try() -> None:
    closed, in_flight = Noticed(), threading.Event()
    gate = Gate(is_alive=lambda: True, slots=Slots(8, closed=closed))

    def refused_while_another_waits() -> str:
        in_flight.set()
        assert closed.is_waited_for.wait(timeout=60)
        raise status_error(404)

    def busy() -> str:
        assert in_flight.wait(timeout=60)
        raise status_error(429, retry_after="60")

    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(gate.ask, request) for request in (refused_while_another_waits, busy)]
        for answer in asked:
            with pytest.raises(EndpointFailed):
                answer.result(timeout=120)


def test_the_servers_own_words_are_shown() -> None:
    assert describe(status_error(400, "too long")) == "HTTP 400: too long"
    broken = openai.APIConnectionError(request=REQUEST)
    broken.__cause__ = httpx.ConnectError("Connection refused")
    assert describe(broken) == "APIConnectionError: Connection error. (Connection refused)"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (context_overflow().text, True),
        ("This model's maximum context length is 8 tokens", True),
        ("HTTP 400: unknown parameter top_k", False),
        ("", False),
    ],
)
def test_a_refusal_for_length_is_told_from_others(message: str, *, expected: bool) -> None:
    assert is_overflow(message) is expected
