"""The probe's client process: started once, replaced when it dies, gone with its prober."""

import contextlib
import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from eval_jobs.errors import ProbeError
from eval_jobs.probe.prober import LatencyProber
from eval_jobs.probe.wire import REQUEST, ClientRequest
from tests.fakes.openai_server import Fault, OpenAIServer, Reply, Request
from tests.probing import CALIBRATION, GOOD, LOAD, bad_from, endpoint_of


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(lambda _: GOOD) as running:
        yield running


def test_a_client_whose_prober_exited_before_it_started_sends_no_requests(server: OpenAIServer) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    server.answer = lambda _: Reply(fault=Fault.HANG)
    request = ClientRequest(
        base_url=server.base_url,
        model=server.model,
        api_key_env="",
        vllm=False,
        load=LOAD,
        request_timeout_s=60.0,
        prober_pid=gone.pid,
    )
    done = subprocess.run(
        [sys.executable, "-P", "-m", "eval_jobs.probe.client.main"], input=REQUEST.dump_json(request), check=False
    )
    assert done.returncode == 1
    assert server.requests == []


def test_prompts_of_our_own_vllm_are_made_once_for_each_tokenizer(server: OpenAIServer, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    ours = replace(endpoint_of(server, engine="vllm"), tokenizer=str(tmp_path))
    prober, asked = LatencyProber(), []
    for content in ("{}", "{}", '{"another": 1}', '{"another": 1}'):
        (tmp_path / "tokenizer.json").write_text(content)
        server.requests.clear()
        prober.probe(ours, LOAD)
        asked.append(len(server.requests) - LOAD.warmup_requests - LOAD.requests)
        prompts = server.prompts()[-LOAD.requests :]
        assert sorted(prompts) == sorted(set(prompts))
    assert asked == [CALIBRATION, 1, CALIBRATION, 1]


def client_pid(prober: LatencyProber) -> int | None:
    return None if prober.client is None else prober.client.pid


def test_the_client_stays_between_probes_and_ends_with_its_prober(server: OpenAIServer) -> None:
    prober = LatencyProber()
    prober.probe(endpoint_of(server), LOAD)
    first = client_pid(prober)
    prober.probe(endpoint_of(server), LOAD)
    assert client_pid(prober) == first
    assert [client.pid for client in clients()] == [first]
    del prober
    assert clients() == []


@pytest.mark.parametrize(("keep_client_s", "left"), [(3600.0, 1), (0.0, 0)])
def test_a_client_is_kept_for_a_while_after_its_last_measurement(
    server: OpenAIServer, keep_client_s: float, left: int
) -> None:
    prober = LatencyProber(keep_client_s=keep_client_s)
    prober.rest()
    prober.probe(endpoint_of(server), LOAD)
    prober.rest()
    assert len(clients()) == left
    assert prober.probe(endpoint_of(server), LOAD).completed == LOAD.requests


def test_a_client_that_was_killed_while_nothing_was_measured_is_started_again(server: OpenAIServer) -> None:
    prober = LatencyProber()
    prober.probe(endpoint_of(server), LOAD)
    (client,) = clients()
    client.kill()
    while client.status() != psutil.STATUS_ZOMBIE:
        threading.Event().wait(0.01)
    assert prober.probe(endpoint_of(server), LOAD).completed == LOAD.requests
    assert client.pid != client_pid(prober)


def test_a_load_that_never_finishes_times_out_and_its_client_exits(server: OpenAIServer) -> None:
    server.answer = bad_from(0, replace(GOOD, fault=Fault.HANG))
    with pytest.raises(ProbeError, match="did not finish within 2 s"):
        LatencyProber(timeout_s=2.0).probe(endpoint_of(server), LOAD)
    assert clients() == []


def kill_clients_at(*numbers: int) -> Callable[[Request], Reply]:
    def answer(request: Request) -> Reply:
        if request.number in numbers:
            for client in clients():
                client.kill()
        return GOOD

    return answer


def test_a_client_that_is_killed_is_started_once_more(server: OpenAIServer) -> None:
    server.answer = kill_clients_at(CALIBRATION + 3)
    result = LatencyProber().probe(endpoint_of(server), LOAD)
    assert (result.completed, result.failed) == (LOAD.requests, 0)
    assert clients() == []


def test_a_client_that_is_killed_again_is_an_error(server: OpenAIServer) -> None:
    server.answer = kill_clients_at(*range(CALIBRATION + 3, 1000))
    with pytest.raises(ProbeError, match="killed twice"):
        LatencyProber().probe(endpoint_of(server), LOAD)


def clients() -> list[psutil.Process]:
    gc.collect()  # an error that was caught may still hold the prober of another test
    return [p for p in psutil.Process().children() if "eval_jobs.probe.client.main" in p.cmdline()]


def test_a_module_in_the_users_folder_is_not_taken_for_a_known_one(server: OpenAIServer, tmp_path: Path) -> None:
    (tmp_path / "aiohttp.py").write_text("raise SystemExit('the wrong one')\n", encoding="utf-8")
    with contextlib.chdir(tmp_path):
        assert LatencyProber().probe(endpoint_of(server), LOAD).completed == LOAD.requests


def test_requests_of_a_rate_are_sent_whether_or_not_those_before_are_answered(server: OpenAIServer) -> None:
    load = replace(LOAD, concurrency=1, warmup_requests=0, request_rate=50.0)
    all_arrived = threading.Barrier(load.requests)

    def answer(request: Request) -> Reply:
        if request.number >= CALIBRATION:
            all_arrived.wait(timeout=120.0)  # nobody is answered before the last one has asked
        return GOOD

    server.answer = answer
    result = LatencyProber().probe(endpoint_of(server), load)
    assert (result.completed, result.failed) == (load.requests, 0)
