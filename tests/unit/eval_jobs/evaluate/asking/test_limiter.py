"""One budget of requests in flight: never exceeded, given back once, and of no use after the end."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import cast

import httpx
import pytest
from evalscope.api.dataset import Sample

from eval_jobs.evaluate.asking.http_client import ModelClient
from eval_jobs.evaluate.asking.journal import Journal
from eval_jobs.evaluate.asking.limiter import ConcurrencyLimiter
from eval_jobs.evaluate.evalscope.child.model_api import StrictAPI
from eval_jobs.evaluate.evalscope.child.recorder import Recorder
from tests.fakes.openai_server import OpenAIServer, Reply, Request

QUESTION = {"model": "fake", "messages": [{"role": "user", "content": "1+1="}]}
KEY = "EMPTY"


class Crowd:
    """Counts how many are inside."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self.most = 0

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            self.most = max(self.most, self._inside)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1


@pytest.fixture
def crowd() -> Crowd:
    return Crowd()


@pytest.fixture
def server(crowd: Crowd) -> Iterator[OpenAIServer]:
    """Refuses `no`, and takes a moment for everything else."""

    def answer(request: Request) -> Reply:
        with crowd:
            threading.Event().wait(0.01)
        return Reply(status=500, text="no") if request.prompt == "no" else Reply(text="2")

    with OpenAIServer(answer) as server:
        yield server


def ask(client: httpx.Client, server: OpenAIServer, question: str = "1+1=") -> int:
    body = QUESTION | {"messages": [{"role": "user", "content": question}]}
    return client.post(f"{server.base_url}/chat/completions", json=body).status_code


def test_no_more_requests_are_in_flight_than_there_are_slots(server: OpenAIServer, crowd: Crowd) -> None:
    limiter = ConcurrencyLimiter(3)
    with ModelClient(30, limiter, secret=KEY, max_tokens=16) as client, ThreadPoolExecutor(12) as threads:
        assert set(threads.map(lambda _: ask(client, server), range(30))) == {200}
    assert crowd.most == 3


def test_an_answer_gives_its_slot_back_at_once(server: OpenAIServer) -> None:
    limiter = ConcurrencyLimiter(1)
    with ModelClient(30, limiter, secret=KEY, max_tokens=16) as client:
        assert ask(client, server) == 200
        with ThreadPoolExecutor(1) as other:
            assert other.submit(limiter.acquire).result(timeout=60)


def test_a_failure_keeps_its_slot_for_its_own_thread_until_it_is_dealt_with(server: OpenAIServer) -> None:
    limiter = ConcurrencyLimiter(1)
    with ModelClient(30, limiter, secret=KEY, max_tokens=16) as client, ThreadPoolExecutor(1) as other:
        assert ask(client, server, "no") == 500
        waiting = other.submit(limiter.acquire)
        assert ask(client, server, "no") == 500, "the same thread asks again in its slot"
        assert not waiting.done()
        limiter.release()
        assert waiting.result(timeout=60)


def test_what_is_no_question_needs_no_slot(server: OpenAIServer) -> None:
    limiter = ConcurrencyLimiter(1)
    assert limiter.acquire()
    with ModelClient(30, limiter, secret=KEY, max_tokens=16) as client, ThreadPoolExecutor(1) as other:
        assert other.submit(client.get, f"{server.base_url}/models").result(timeout=60).status_code == 200


def test_after_the_end_nothing_is_sent_any_more(server: OpenAIServer) -> None:
    limiter = ConcurrencyLimiter(1)
    with ModelClient(30, limiter, secret=KEY, max_tokens=16) as client, ThreadPoolExecutor(2) as others:
        assert limiter.acquire()
        waiting = [others.submit(ask, client, server) for _ in range(2)]
        limiter.stopped.set()
        limiter.release()
        for one in waiting:
            with pytest.raises(httpx.ConnectError, match="stopped before the request was sent"):
                one.result(timeout=60)
    assert server.requests == []


def test_a_server_that_wants_peace_gets_no_request_from_those_who_waited_for_a_slot_meanwhile() -> None:
    limiter = ConcurrencyLimiter(1)
    assert limiter.acquire()
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(limiter.acquire)
        limiter.busy_until_s = limiter.stopped.now_s() + 3600
        limiter.release()
        with pytest.raises(TimeoutError):
            waiting.result(timeout=0.1)
        limiter.stopped.set()
        assert waiting.result(timeout=60) is False


def test_giving_back_what_one_does_not_have_changes_nothing() -> None:
    limiter = ConcurrencyLimiter(1)
    for _ in range(3):
        limiter.release()
    assert limiter.acquire()
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(limiter.acquire)
        with pytest.raises(TimeoutError):
            waiting.result(timeout=0.1)
        limiter.release()
        assert waiting.result(timeout=60)


def test_the_time_with_a_slot_is_counted_once() -> None:
    limiter = ConcurrencyLimiter(1)
    limiter.acquire()
    threading.Event().wait(0.01)
    limiter.release()
    assert limiter.spent_s() >= 0.01
    assert limiter.spent_s() == 0.0


def test_a_question_that_failed_outside_the_breaker_gives_its_slot_back() -> None:
    """A benchmark that holds its own conversation: its thread may have nothing more to ask, and others wait."""
    limiter = ConcurrencyLimiter(1)
    recorder = object.__new__(Recorder)
    recorder.api = cast("StrictAPI", SimpleNamespace(limiter=limiter, thread=threading.local()))
    recorder.journal = cast("Journal", SimpleNamespace(refusal=lambda _: "", repeats=1, note_asking=lambda _: None))
    recorder.model = SimpleNamespace(config=SimpleNamespace(seed=0))

    def converse(**_: object) -> object:
        assert limiter.acquire()
        raise httpx.ReadTimeout("no answer")

    recorder.benchmark = SimpleNamespace(run_inference=converse)
    item = SimpleNamespace(needs_predict=True, subset="s", sample=Sample(input="1+1=", id=0))
    with pytest.raises(httpx.ReadTimeout):
        recorder._process_work_item(item, "")
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(limiter.acquire)
        try:
            assert waiting.result(timeout=60)
        finally:
            limiter.release()
