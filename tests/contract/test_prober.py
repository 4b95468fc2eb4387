"""The rules of `ports.Prober`, over the fake and the real one, which is pointed at a scripted server."""

import re
import threading
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from eval_jobs.errors import ProbeError
from eval_jobs.ports import Prober
from eval_jobs.probe.prober import LatencyProber
from tests.fakes.openai_server import Fault, OpenAIServer, Reply, Request
from tests.fakes.prober import FakeProber
from tests.probing import CALIBRATION, GOOD, LOAD, TOKENS, bad_from, endpoint_of


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(lambda _: GOOD) as running:
        yield running


# --- rules for every prober


class FakeCase:
    def good(self) -> Prober:
        return FakeProber()

    def two_requests_fail(self) -> Prober:
        return FakeProber(failed_requests=2)

    def nobody_answers(self) -> Prober:
        return FakeProber(failure=ProbeError("nobody answers", hint="see its log"))


class RealCase:
    def __init__(self, server: OpenAIServer) -> None:
        self._server = server

    def good(self) -> Prober:
        return LatencyProber()

    def two_requests_fail(self) -> Prober:
        self._server.answer = bad_from(LOAD.requests - 2, Reply(status=500, text="no"))
        return LatencyProber()

    def nobody_answers(self) -> Prober:
        self._server.stop()
        return LatencyProber()


Case = FakeCase | RealCase


@pytest.fixture(params=["fake", "real"])
def case(request: pytest.FixtureRequest, server: OpenAIServer) -> Case:
    return FakeCase() if request.param == "fake" else RealCase(server)


def test_a_good_endpoint_gives_every_figure(case: Case, server: OpenAIServer) -> None:
    result = case.good().probe(endpoint_of(server), LOAD)
    assert result.load == LOAD
    assert (result.completed, result.failed, result.first_error) == (LOAD.requests, 0, "")
    assert result.output_tokens == LOAD.requests * LOAD.output_tokens
    assert result.ttft_ms is not None
    assert result.tpot_ms is not None
    assert result.itl_ms is not None
    assert result.e2e_ms is not None
    assert 0 < result.ttft_ms.p50 <= result.e2e_ms.p50 <= result.e2e_ms.p99
    assert result.duration_s > 0
    assert result.requests_per_s == pytest.approx(LOAD.requests / result.duration_s)
    assert [timing.position for timing in result.requests] == list(range(LOAD.requests))
    assert result.ttft_ms.p50 == pytest.approx(np.median([timing.ttft_ms for timing in result.requests]))
    assert result.tpot_ms.p50 == pytest.approx(np.median([timing.tpot_ms for timing in result.requests]))
    assert result.e2e_ms.p50 == pytest.approx(np.median([timing.e2e_ms for timing in result.requests]))


def test_failed_requests_are_counted_and_named(case: Case, server: OpenAIServer) -> None:
    result = case.two_requests_fail().probe(endpoint_of(server), LOAD)
    assert (result.completed, result.failed) == (LOAD.requests - 2, 2)
    assert "HTTP 500: no" in result.first_error
    positions = [timing.position for timing in result.requests]
    assert len(positions) == LOAD.requests - 2
    assert positions == sorted(set(positions) & set(range(LOAD.requests)))
    assert result.output_tokens == (LOAD.requests - 2) * LOAD.output_tokens


def test_an_endpoint_that_nobody_runs_is_an_error(case: Case, server: OpenAIServer) -> None:
    with pytest.raises(ProbeError) as caught:
        case.nobody_answers().probe(endpoint_of(server), LOAD)
    assert caught.value.hint


# --- rules that only a real server can break


def test_the_load_is_what_was_asked_for(server: OpenAIServer) -> None:
    LatencyProber().probe(endpoint_of(server), LOAD)
    load = server.requests[CALIBRATION:]
    assert len(load) == LOAD.warmup_requests + LOAD.requests
    assert len(set(server.prompts())) == len(server.requests)
    for request in load:
        assert request.path == "/v1/completions"
        expected = {"max_tokens": len(TOKENS), "temperature": 0.0, "ignore_eos": True, "stream": True}
        assert expected.items() <= request.body.items()
        assert request.body["stream_options"] == {"include_usage": True}


def test_warming_up_enters_no_figure(server: OpenAIServer) -> None:
    warm_up = range(CALIBRATION, CALIBRATION + LOAD.warmup_requests)
    server.answer = lambda request: Reply(status=500, text="cold") if request.number in warm_up else GOOD
    result = LatencyProber().probe(endpoint_of(server), LOAD)
    assert (result.completed, result.failed) == (LOAD.requests, 0)


def test_the_figures_are_those_of_the_server(server: OpenAIServer) -> None:
    server.answer = lambda _: replace(GOOD, first_token_delay_s=0.1, token_delay_s=0.02)
    result = LatencyProber().probe(endpoint_of(server), LOAD)
    assert result.ttft_ms is not None
    assert result.tpot_ms is not None
    assert result.e2e_ms is not None
    # Lower bounds only: a busy machine makes everything later, nothing makes it earlier.
    assert result.ttft_ms.p50 >= 100
    assert result.e2e_ms.p50 >= 100 + 7 * 20
    # What comes between may be less: a first token that is seen late leaves less time to the others.
    for timing in result.requests:
        assert timing.tpot_ms == pytest.approx((timing.e2e_ms - timing.ttft_ms) / 7, abs=0.01)


def test_no_more_requests_are_in_flight_than_the_load_says(server: OpenAIServer) -> None:
    changed, now, most = threading.Condition(), 0, 0

    def answer(request: Request) -> Reply:
        nonlocal now, most
        if request.number < CALIBRATION + LOAD.warmup_requests:
            return GOOD
        with changed:
            now += 1
            most = max(most, now)
            changed.notify_all()
            assert changed.wait_for(lambda: most >= 3, timeout=120)
        threading.Event().wait(0.03)  # time for one too many
        with changed:
            now -= 1
        return GOOD

    server.answer = answer
    LatencyProber().probe(endpoint_of(server), replace(LOAD, concurrency=3, requests=9))
    assert most == 3


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (replace(GOOD, fault=Fault.ERROR_EVENT), "EngineCore"),
        (replace(GOOD, finish_reason="abort"), "abort"),
        (replace(GOOD, fault=Fault.CUT), "not enough data|ended before|closed|incomplete|Payload"),
        (replace(GOOD, fault=Fault.CLOSE), "Disconnected"),
        (replace(GOOD, fault=Fault.GARBAGE), "ended before"),
        (Reply(status=429, text="slow down"), "HTTP 429: .*slow down"),
    ],
)
def test_every_way_to_fail_counts_as_failed(server: OpenAIServer, bad: Reply, words: str) -> None:
    server.answer = bad_from(3, bad)
    result = LatencyProber().probe(endpoint_of(server), LOAD)
    assert (result.completed, result.failed) == (3, 3)
    assert re.search(words, result.first_error), result.first_error


def test_a_server_that_says_nothing_is_not_waited_for_for_ever(server: OpenAIServer) -> None:
    server.answer = bad_from(4, replace(GOOD, fault=Fault.HANG))
    result = LatencyProber(request_timeout_s=3.0).probe(endpoint_of(server), LOAD)
    assert result.completed + result.failed == LOAD.requests
    assert result.failed >= 2, "on a busy machine others may take too long as well"
    assert "timed out" in result.first_error


def test_a_server_that_fails_after_the_warm_up_gives_no_percentiles(server: OpenAIServer) -> None:
    server.answer = bad_from(0, Reply(status=500, text="no"))
    result = LatencyProber().probe(endpoint_of(server), LOAD)
    assert (result.completed, result.failed, result.ttft_ms, result.tpot_ms) == (0, LOAD.requests, None, None)


def test_tokens_are_counted_by_usage_and_not_by_events(server: OpenAIServer) -> None:
    server.answer = lambda _: replace(GOOD, usage=False)
    result = LatencyProber().probe(endpoint_of(server), LOAD)
    assert (result.completed, result.output_tokens, result.tpot_ms) == (LOAD.requests, 0, None)
    assert result.ttft_ms is not None


def test_one_token_has_no_time_per_further_token(server: OpenAIServer) -> None:
    server.answer = lambda _: replace(GOOD, tokens=("a",))
    result = LatencyProber().probe(endpoint_of(server), replace(LOAD, output_tokens=1))
    assert (result.completed, result.tpot_ms, result.itl_ms) == (LOAD.requests, None, None)


# --- endpoints that somebody else runs


def test_an_endpoint_that_only_knows_chat_is_asked_by_chat(server: OpenAIServer) -> None:
    server.answer = lambda r: GOOD if "messages" in r.body else Reply(status=404, text="Not Found")
    result = LatencyProber().probe(endpoint_of(server), LOAD)
    assert result.completed == LOAD.requests
    assert {r.path for r in server.requests[1:]} == {"/v1/chat/completions"}


def test_an_endpoint_that_refuses_ignore_eos_is_asked_without_it(server: OpenAIServer) -> None:
    def answer(request: Request) -> Reply:
        strict = "messages" in request.body and "ignore_eos" not in request.body
        return GOOD if strict else Reply(status=400, text="Unrecognized request argument supplied")

    server.answer = answer
    assert LatencyProber().probe(endpoint_of(server), LOAD).completed == LOAD.requests


def test_the_length_of_prompts_is_found_by_asking(server: OpenAIServer) -> None:
    def answer(request: Request) -> Reply:
        return replace(GOOD, prompt_tokens=5 + 3 * len(request.prompt.split()))

    server.answer = answer
    LatencyProber().probe(endpoint_of(server), replace(LOAD, input_tokens=65))
    assert {len(prompt.split()) for prompt in server.prompts()[CALIBRATION:]} == {20}


def test_two_probes_of_one_endpoint_never_ask_the_same(server: OpenAIServer) -> None:
    LatencyProber().probe(endpoint_of(server), LOAD)
    LatencyProber().probe(endpoint_of(server), LOAD)
    assert len(set(server.prompts())) == len(server.requests)


def test_our_own_vllm_gets_the_same_prompts_each_time_under_another_cache_salt(server: OpenAIServer) -> None:
    ours = endpoint_of(server, engine="vllm")
    LatencyProber().probe(ours, LOAD)
    first, salts = sorted(server.prompts()), {r.body["cache_salt"] for r in server.requests}
    server.requests.clear()
    LatencyProber().probe(ours, LOAD)
    assert sorted(server.prompts()) == first
    assert not salts & {r.body["cache_salt"] for r in server.requests}


@pytest.mark.parametrize(
    ("status", "words"), [(401, "HTTP 401"), (503, "HTTP 503"), (400, "chat/completions: HTTP 400")]
)
def test_an_endpoint_that_refuses_everything_is_named_with_its_reason(
    server: OpenAIServer, status: int, words: str
) -> None:
    server.answer = lambda _: Reply(status=status, text="not for you")
    with pytest.raises(ProbeError, match=f"{words}.*not for you") as caught:
        LatencyProber().probe(endpoint_of(server), LOAD)
    assert server.base_url in caught.value.message
    assert "/var/log/engine.log" in caught.value.hint


def test_the_key_comes_from_the_named_variable(server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.api_key = "secret-1"
    monkeypatch.setenv("PROBE_TEST_KEY", "secret-1")
    assert LatencyProber().probe(endpoint_of(server, api_key_env="PROBE_TEST_KEY"), LOAD).failed == 0


def test_a_missing_key_is_named_by_its_variable(server: OpenAIServer) -> None:
    with pytest.raises(ProbeError, match="NO_SUCH_KEY_VARIABLE"):
        LatencyProber().probe(endpoint_of(server, api_key_env="NO_SUCH_KEY_VARIABLE"), LOAD)


def test_a_proxy_from_the_environment_is_not_used_for_this_machine(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert LatencyProber().probe(endpoint_of(server), LOAD).completed == LOAD.requests


# --- the server's and the client's own state


def test_a_busy_server_is_waited_for(server: OpenAIServer) -> None:
    server.metrics = 'vllm:num_requests_running{engine="0"} 2.0'
    timer = threading.Timer(0.4, lambda: setattr(server, "metrics", 'vllm:num_requests_running{engine="0"} 0.0'))
    timer.start()
    assert LatencyProber().probe(endpoint_of(server, engine="vllm"), LOAD).completed == LOAD.requests
    timer.join()


def test_a_server_that_stays_busy_is_not_measured(server: OpenAIServer) -> None:
    server.metrics = 'vllm:num_requests_waiting{engine="0"} 3.0'
    with pytest.raises(ProbeError, match="busy: 3 requests"):
        LatencyProber(idle_timeout_s=0.2).probe(endpoint_of(server, engine="vllm"), LOAD)
    assert server.requests == []


def test_a_key_that_the_server_repeats_is_masked(server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_KEY", "canary-4711")
    server.api_key = "canary-4711"
    endpoint = endpoint_of(server, api_key_env="GATEWAY_KEY")
    server.answer = bad_from(2, Reply(status=500, text="failed with Bearer canary-4711"))
    assert "failed with Bearer ***" in LatencyProber().probe(endpoint, LOAD).first_error
    server.answer = lambda _: Reply(status=401, text="canary-4711 is refused")
    with pytest.raises(ProbeError, match=r"\*\*\* is refused"):
        LatencyProber().probe(endpoint, LOAD)


@pytest.mark.parametrize("wrong", [{"requests": 0}, {"concurrency": 0}, {"output_tokens": 0}, {"warmup_requests": -1}])
def test_a_load_of_nothing_is_refused(server: OpenAIServer, wrong: dict[str, int]) -> None:
    with pytest.raises(ProbeError, match="invalid load "):
        LatencyProber().probe(endpoint_of(server), replace(LOAD, **wrong))  # type: ignore[arg-type]


def test_more_workers_than_requests_are_no_trouble(server: OpenAIServer) -> None:
    result = LatencyProber().probe(endpoint_of(server), replace(LOAD, requests=1, concurrency=50, warmup_requests=0))
    assert result.completed == 1
