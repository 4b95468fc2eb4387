"""The real vLLM: the port's rules, an adapter beside its base, a start that fails, and what a killed worker leaves."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import openai
import psutil
import pytest

from eval_jobs.errors import ServerDied
from eval_jobs.host.clock import SystemClock
from eval_jobs.serve.process.lifecycle import reap
from eval_jobs.serve.resident.vllm import VllmEngine
from eval_jobs.types import Endpoint, ServeSpec
from tests.contract.engine_rules import check_endpoint, nothing_to_show, offered_models
from tests.fakes.serving_worker import start_worker, wait_for_line
from tests.integration.left_behind import record_of, writers
from tests.tiny_model import checkpoint_record, write_checkpoint, write_lora
from tests.vllm_series import Series

pytestmark = pytest.mark.vllm


@dataclass(frozen=True, kw_only=True)
class AdapterServer:
    """A worker process that serves an adapter through a real vLLM."""

    worker: subprocess.Popen[str]
    work_dir: Path
    base_url: str
    model: str


@pytest.fixture(scope="module")
def adapter_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdapterServer]:
    folder = tmp_path_factory.mktemp("adapter-server")
    base = write_checkpoint(folder / "base", seed=0)
    adapter = write_lora(base, folder / "adapter", rank=4, seed=1)
    with start_worker(str(folder / "work"), str(adapter), "--base", str(base)) as worker:
        try:
            _, base_url, model = wait_for_line(worker, "serving").split()
            yield AdapterServer(worker=worker, work_dir=folder / "work", base_url=base_url, model=model)
        finally:
            worker.kill()
            worker.wait()
            reap(folder / "work" / "engines", SystemClock())


def test_the_rules_of_the_port_hold_for_the_real_vllm(plain: Series, served: Endpoint) -> None:
    check_endpoint(served)
    assert offered_models(served) == [served.model]
    assert served.info.version.startswith("0.32")
    assert plain.infos[0].load_method == "cold"
    assert plain.infos[0].load_s > 1
    assert Path(served.tokenizer, "tokenizer.json").is_file()


def test_no_process_of_the_engine_listens_beyond_this_machine(served: Endpoint) -> None:
    engine = writers(served.info.log)
    listening = {
        connection.laddr.ip
        for pid in engine
        for connection in psutil.Process(pid).net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}


def test_an_adapter_answers_beside_its_base_and_differently(adapter_server: AdapterServer) -> None:
    model = adapter_server.model
    with openai.OpenAI(base_url=adapter_server.base_url, api_key="none") as client:
        base_name = model.rpartition("-")[0]
        assert [entry.id for entry in client.models.list()] == [base_name, model]
        first, base, second = (complete(client, name) for name in (model, base_name, model))
    assert first == second
    assert first != base


def test_a_worker_and_a_server_that_are_killed_leave_nothing_after_the_next_reap(adapter_server: AdapterServer) -> None:
    # The hardest case: the engine's core and worker live on without the process that started them.
    record = record_of(adapter_server.work_dir)
    adapter_server.worker.kill()
    adapter_server.worker.wait()
    os.kill(record.pid, signal.SIGKILL)
    assert writers(record.log), "vLLM would otherwise clean up by itself, and the reaper could go"
    assert reap(adapter_server.work_dir / "engines", SystemClock()) == (Path(record.log).stem,)
    assert writers(record.log) == []
    assert not Path(record.tmp_dir).exists()


def test_a_broken_config_ends_the_start_with_the_name_of_the_file(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint")
    (folder / "config.json").write_text('{"architectures": ["Llama')
    engine = VllmEngine(tmp_path / "work", SystemClock())
    with (
        pytest.raises(ServerDied, match=r"config\.json' is not a valid JSON file") as caught,
        engine.serving(checkpoint_record(folder), ServeSpec(), progress=nothing_to_show),
    ):
        pytest.fail("it must not be served")
    assert str(tmp_path / "work" / "engines") in caught.value.hint


# --- private


def complete(client: openai.OpenAI, model: str) -> str:
    answer = client.completions.create(
        model=model, prompt="What is 1 + 1?", max_tokens=24, temperature=0.0, extra_body={"ignore_eos": True}
    )
    return answer.choices[0].text
