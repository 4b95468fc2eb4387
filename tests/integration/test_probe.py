"""The real probe on a real vLLM server."""

from dataclasses import replace

import httpx
import pytest

from eval_jobs.probe.prober import GAUGES, LatencyProber, requests_in_flight
from eval_jobs.types import Endpoint, ProbeLoad

pytestmark = pytest.mark.vllm

LOAD = ProbeLoad(requests=8, concurrency=4, input_tokens=48, output_tokens=16, warmup_requests=2)


def metrics_of(endpoint: Endpoint) -> str:
    return httpx.get(endpoint.base_url.removesuffix("/v1") + "/metrics", trust_env=False).text


def counter(text: str, name: str) -> float:
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"{name}{{"))


def test_a_real_server_gives_every_figure_for_exactly_the_load_that_was_asked_for(served: Endpoint) -> None:
    before = metrics_of(served)
    result = LatencyProber().probe(served, LOAD)
    after = metrics_of(served)

    assert (result.completed, result.failed, result.first_error) == (LOAD.requests, 0, "")
    assert result.output_tokens == LOAD.requests * LOAD.output_tokens
    assert result.ttft_ms is not None
    assert result.tpot_ms is not None
    assert result.e2e_ms is not None
    assert 0 < result.ttft_ms.p50 <= result.e2e_ms.p50

    # The server's own count: two prompts of one token to learn its tokenizer, then warm-up and load at exact length.
    load_requests = LOAD.requests + LOAD.warmup_requests
    generated = counter(after, "vllm:generation_tokens_total") - counter(before, "vllm:generation_tokens_total")
    assert generated == load_requests * LOAD.output_tokens + 2
    prompt_sum = counter(after, "vllm:request_prompt_tokens_sum") - counter(before, "vllm:request_prompt_tokens_sum")
    two_short_ones = prompt_sum - load_requests * LOAD.input_tokens
    assert 0 < two_short_ones < 256
    cached = counter(after, "vllm:prefix_cache_hits_total") - counter(before, "vllm:prefix_cache_hits_total")
    assert cached == 0


def test_the_gauges_that_say_whether_a_server_is_idle_exist(served: Endpoint) -> None:
    text = metrics_of(served)
    assert all(f"\n{gauge}{{" in text for gauge in GAUGES)
    assert requests_in_flight(text) == 0


def test_a_load_that_does_not_fit_the_context_fails_with_the_servers_reason(served: Endpoint) -> None:
    result = LatencyProber().probe(served, replace(LOAD, input_tokens=4000))
    assert (result.completed, result.failed, result.ttft_ms) == (0, LOAD.requests, None)
    assert "maximum context length" in result.first_error


def test_the_same_server_run_by_somebody_else_is_measured_too(served: Endpoint) -> None:
    stranger = replace(served, info=replace(served.info, name="remote"))
    result = LatencyProber().probe(stranger, LOAD)
    assert (result.completed, result.output_tokens) == (LOAD.requests, LOAD.requests * LOAD.output_tokens)
