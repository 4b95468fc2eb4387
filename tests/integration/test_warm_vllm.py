"""The real vLLM stays between checkpoints: swaps and adapters answer as cold starts do, to the bit. Five starts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai
import psutil
import pytest

from eval_jobs.host.clock import SystemClock
from eval_jobs.serve.process.control import post_to_engine
from eval_jobs.serve.resident.canary import ask_canaries
from eval_jobs.serve.resident.certificate import every_proof
from eval_jobs.serve.resident.order import runs_on_cpu
from eval_jobs.serve.resident.sleeping import DROP_WEIGHTS, fall_asleep, wake_cache, wake_weights
from eval_jobs.serve.resident.swap import swap
from eval_jobs.serve.resident.vllm import VllmEngine
from eval_jobs.types import Checkpoint, Endpoint, EngineInfo, ServeSpec
from tests.contract.engine_rules import check_endpoint, nothing_to_show
from tests.swap_models import UNFIT
from tests.tiny_model import VOCABULARY, checkpoint_record, write_checkpoint, write_lora

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1500)]

SPEC = ServeSpec(max_model_len=256)
PROMPTS = [f"{n} + {n * n} =" for n in range(20)] + ["a long prompt " * 13]
"""The last one is longer than a block of the engine's cache of prompts."""


@dataclass
class Series:
    """What was served by one engine, one after the other."""

    engine: VllmEngine
    work_dir: Path
    infos: list[EngineInfo] = field(default_factory=list)
    answers: list[list[tuple[Any, ...]]] = field(default_factory=list)
    spoilt: EngineInfo | None = None
    """Of a checkpoint of NaN, which came before them."""

    def serve(self, checkpoint: Checkpoint) -> None:
        with self.engine.serving(checkpoint, SPEC, progress=nothing_to_show) as endpoint:
            check_endpoint(endpoint)
            self.infos.append(endpoint.info)
            self.answers.append(ask_all(endpoint, PROMPTS))

    @property
    def methods(self) -> list[str]:
        return [info.load_method for info in self.infos]


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Series]:
    """Checkpoints of seeds 1, 2, 3, 1 and 2 after one of NaN; the first two are cold."""
    folder = tmp_path_factory.mktemp("full")
    UNFIT["NaN"][0](write_checkpoint(folder / "nan", seed=1))
    checkpoints = [checkpoint_record(write_checkpoint(folder / f"{n}", seed=n), step=n) for n in (1, 2, 3)]
    series = Series(engine=VllmEngine(folder / "work", SystemClock()), work_dir=folder / "work")
    try:
        with series.engine.serving(checkpoint_record(folder / "nan"), SPEC, progress=nothing_to_show) as endpoint:
            series.spoilt = endpoint.info
        for index in (0, 1, 2, 0, 1):
            series.serve(checkpoints[index])
        yield series
    finally:
        series.engine.close()


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Series]:
    """Adapters of seeds 1, 2, 3, 1 and 2; the first two are cold."""
    folder = tmp_path_factory.mktemp("adapters")
    base = write_checkpoint(folder / "base", seed=0)
    found = [write_lora(base, folder / f"{n}", rank=4, seed=n) for n in (1, 2, 3)]
    checkpoints = [checkpoint_record(path, step=n, base=base) for n, path in enumerate(found, start=1)]
    series = Series(engine=VllmEngine(folder / "work", SystemClock()), work_dir=folder / "work")
    try:
        for index in (0, 1, 2, 0, 1):
            series.serve(checkpoints[index])
        yield series
    finally:
        series.engine.close()


def test_after_a_checkpoint_that_answers_nan_the_engine_is_started_anew(full: Series) -> None:
    """What was computed from NaN may stay in its cache beyond any swap."""
    assert full.spoilt is not None
    assert full.spoilt.canaries == ()
    assert full.infos[0].load_reason == "its last checkpoint did not answer the fixed prompts"
    assert full.infos[0].canaries
    assert full.infos[0].log != full.spoilt.log


def test_the_second_checkpoint_certifies_and_the_others_are_swapped_in(full: Series) -> None:
    assert full.methods == ["cold", "cold", "swap", "swap", "swap"]
    assert "equal to the bit" in full.infos[1].load_reason
    ((_, proof),) = every_proof(full.work_dir / "certificates")
    assert proof.is_certificate
    assert {info.certificate for info in full.infos[2:]} == {proof.kind.id}
    assert len({info.log for info in full.infos[1:]}) == 1


def test_every_answer_of_a_swapped_checkpoint_is_that_of_its_cold_start_to_the_bit(full: Series) -> None:
    first, second, third, first_again, second_again = full.answers
    assert first_again == first
    assert second_again == second
    assert first != second != third != first
    assert full.infos[3].canaries == full.infos[0].canaries != full.infos[1].canaries


@pytest.mark.skipif(not runs_on_cpu() or len(os.sched_getaffinity(0)) < 2, reason="nothing is bound to cores")
def test_only_the_scheduler_shares_the_cores_of_its_worker_where_one_core_is_left(full: Series, tmp_path: Path) -> None:
    third = checkpoint_record(write_checkpoint(tmp_path / "checkpoint", seed=3), step=3)
    with full.engine.serving(third, SPEC, progress=nothing_to_show) as endpoint:
        assert full.engine._resident is not None
        family = [psutil.Process(pid) for pid in full.engine._resident.process.members()]
        cores = {one.pid: used_by(one) for one in family}
        (worker,) = [one for one in family if one.name().startswith("VLLM::Worker")]
        left = os.sched_getaffinity(0) - cores[worker.pid]
        if len(left) > 1:
            assert endpoint.client_cores == ()
            return
        assert endpoint.client_cores == tuple(left)
        scheduler = worker.ppid()
        assert cores.pop(scheduler) == cores.pop(worker.pid)
        assert cores
        assert all(used == left for used in cores.values())


def used_by(process: psutil.Process) -> set[int]:
    """On which cores its threads run, but for those of a worker that never compute."""
    masks = [os.sched_getaffinity(thread.id) for thread in process.threads()]
    return set[int]().union(*([mask for mask in masks if mask < os.sched_getaffinity(0)] or masks))


def test_the_halves_of_a_waking_around_a_swap_are_taken_by_the_real_server(full: Series, tmp_path: Path) -> None:
    """On a CPU no memory moves; that vLLM takes these calls in this order is what can be shown here."""
    third = checkpoint_record(write_checkpoint(tmp_path / "checkpoint", seed=3), step=3)
    second = checkpoint_record(write_checkpoint(tmp_path / "second", seed=2), step=2)
    with full.engine.serving(second, SPEC, progress=nothing_to_show) as endpoint:
        port = int(endpoint.base_url.removesuffix("/v1").rpartition(":")[2])
        resident = full.engine._resident
        assert resident is not None
        assert resident.model is not None
        fall_asleep(port, DROP_WEIGHTS)
        resident.asleep = DROP_WEIGHTS
        assert resident.why_silent() == ""
        wake_weights(port)
        swap(port, third, resident.model, timeout_s=60)
        wake_cache(port)
        resident.asleep = 0
        assert ask_all(endpoint, PROMPTS) == full.answers[2]
        swap(port, second, resident.model, timeout_s=60)


def test_the_folder_that_an_engine_was_started_on_may_go(full: Series, tmp_path: Path) -> None:
    """Pins are given up while a run goes on, and a tokenizer is needed for as long as the engine lives."""
    started_on = Path(full.work_dir.parent / "2")
    shutil.rmtree(started_on)
    fourth = checkpoint_record(write_checkpoint(tmp_path / "checkpoint", seed=4), step=4)
    with full.engine.serving(fourth, SPEC, progress=nothing_to_show) as endpoint:
        assert endpoint.info.load_method == "swap"
        with openai.OpenAI(base_url=endpoint.base_url, api_key="none") as client:
            question = client.chat.completions.create(
                model=endpoint.model, messages=[{"role": "user", "content": "1+1?"}], max_tokens=8, temperature=0
            )
        assert question.usage is not None
        assert question.usage.completion_tokens == 8 or question.choices[0].finish_reason == "stop"


def test_adapters_are_loaded_beside_their_base_as_after_a_cold_start_to_the_bit(adapters: Series) -> None:
    assert adapters.methods == ["cold", "cold", "adapter", "adapter", "cold"]
    assert adapters.infos[4].load_reason == "it was in the engine already"
    first, second, third, first_again, second_again = adapters.answers
    assert first_again == first
    assert second_again == second
    assert first != second != third != first
    ((_, proof),) = every_proof(adapters.work_dir / "certificates")
    assert (proof.is_certificate, proof.kind.way) == (True, "adapter")


def test_nobody_but_the_worker_can_load_an_adapter(adapters: Series) -> None:
    resident = adapters.engine._resident
    assert resident is not None
    url = f"http://127.0.0.1:{resident.launch.port}/v1"
    with (
        openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client,
        pytest.raises(openai.APIStatusError) as no,
    ):
        client.post("/load_lora_adapter", body={"lora_name": "x", "lora_path": "/tmp/x"}, cast_to=object)  # noqa: S108
    assert no.value.status_code == 403


def test_vllm_alone_lets_a_base_go_from_under_its_adapters(adapters: Series, tmp_path: Path) -> None:
    """Why an adapter of another base is a new start. Runs after all others of this server."""
    resident = adapters.engine._resident
    assert resident is not None
    port, adapter = resident.launch.port, resident.newest().model
    right = ask_canaries(port, adapter, vocab_size=len(VOCABULARY))
    assert right == adapters.infos[-1].canaries
    other = write_checkpoint(tmp_path / "other", seed=9)
    for base, is_right in ((other, False), (adapters.work_dir.parent / "base", True)):
        for path, body in (
            ("/pause?mode=wait", None),
            ("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(base)}}),
            ("/resume", None),
        ):
            assert post_to_engine(port, path, body, timeout_s=120).is_ok
        assert (ask_canaries(port, adapter, vocab_size=len(VOCABULARY)) == right) == is_right


# --- private


def ask_all(endpoint: Endpoint, prompts: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return text and log probabilities of greedy answers, asked one by one."""
    with openai.OpenAI(base_url=endpoint.base_url, api_key="none") as client:
        found = [
            client.completions.create(
                model=endpoint.model,
                prompt=prompt,
                max_tokens=16,
                temperature=0.0,
                logprobs=1,
                extra_body={"ignore_eos": True},
            ).choices[0]
            for prompt in prompts
        ]
    return [(choice.text, choice.logprobs.token_logprobs if choice.logprobs else ()) for choice in found]
