"""The real vLLM stays between checkpoints: swaps and adapters answer as cold starts do, to the bit.

The plain one is that of all tests. At last both are killed while they answer.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import openai
import psutil
import pytest

from eval_jobs.serve.process.control import post_to_engine
from eval_jobs.serve.resident.canary import ask_canaries
from eval_jobs.serve.resident.certificate import every_proof
from eval_jobs.serve.resident.order import runs_on_cpu
from eval_jobs.serve.resident.sleeping import DROP_WEIGHTS, fall_asleep, wake
from eval_jobs.serve.resident.swap import swap
from tests.alertmanagers import eventually
from tests.integration.killed_engines import a_plan_whose_engine_is_killed, decoys, shared_memory
from tests.integration.left_behind import record_of, writers
from tests.tiny_model import VOCABULARY, checkpoint_record, write_checkpoint, write_lora
from tests.vllm_series import PROMPTS, Series, ask_all, series_of

__all__ = ["decoys"]

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Series]:
    """Adapters of seeds 1, 2, 3, 1 and 2; the first two are cold."""
    folder = tmp_path_factory.mktemp("adapters")
    base = write_checkpoint(folder / "base", seed=0)
    found = [write_lora(base, folder / f"{n}", rank=4, seed=n) for n in (1, 2, 3)]
    checkpoints = [checkpoint_record(path, step=n, base=base) for n, path in enumerate(found, start=1)]
    with series_of(folder / "work", checkpoints) as series:
        yield series


def test_the_second_checkpoint_certifies_and_the_others_are_swapped_in(plain: Series) -> None:
    assert plain.methods == ["cold", "cold", "swap", "swap", "swap"]
    assert "bit-identical to a cold start" in plain.infos[1].load_reason
    ((_, proof),) = every_proof(plain.work_dir / "certificates")
    assert proof.is_certificate
    assert {info.certificate for info in plain.infos[2:]} == {proof.kind.id}
    assert len({info.log for info in plain.infos[1:]}) == 1


def test_every_answer_of_a_swapped_checkpoint_is_that_of_its_cold_start_to_the_bit(plain: Series) -> None:
    first, second, third, first_again, second_again = plain.answers
    assert first_again == first
    assert second_again == second
    assert first != second != third != first
    assert plain.infos[3].canaries == plain.infos[0].canaries != plain.infos[1].canaries


@pytest.mark.skipif(not runs_on_cpu() or len(os.sched_getaffinity(0)) < 2, reason="nothing is bound to cores")
def test_only_the_scheduler_shares_the_cores_of_its_worker_where_one_core_is_left(
    plain: Series, tmp_path: Path
) -> None:
    third = checkpoint_record(write_checkpoint(tmp_path / "checkpoint", seed=3), step=3)
    with plain.serving(third) as endpoint:
        family = [psutil.Process(pid) for pid in plain.resident.process.members()]
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


def test_the_halves_of_a_waking_around_a_swap_are_taken_by_the_real_server(plain: Series, tmp_path: Path) -> None:
    """On a CPU no memory moves; that vLLM takes these calls in this order is what can be shown here."""
    third = checkpoint_record(write_checkpoint(tmp_path / "checkpoint", seed=3), step=3)
    second = checkpoint_record(write_checkpoint(tmp_path / "second", seed=0), step=0)
    with plain.serving(second) as endpoint:
        resident = plain.resident
        port = resident.launch.port
        assert resident.model is not None
        fall_asleep(port, DROP_WEIGHTS)
        resident.asleep = DROP_WEIGHTS
        assert resident.why_silent() == ""
        wake(port, "weights")
        swap(port, third, resident.model, timeout_s=60)
        wake(port, "kv_cache")
        resident.asleep = 0
        assert ask_all(endpoint, PROMPTS) == plain.answers[2]
        swap(port, second, resident.model, timeout_s=60)


def test_the_folder_that_an_engine_was_started_on_may_go(plain: Series, tmp_path: Path) -> None:
    """Pins are given up while a run goes on, and a tokenizer is needed for as long as the engine lives."""
    started_on = Path(plain.work_dir.parent / "0")
    shutil.rmtree(started_on)
    fourth = checkpoint_record(write_checkpoint(tmp_path / "checkpoint", seed=4), step=4)
    with plain.serving(fourth) as endpoint:
        assert endpoint.info.load_method == "swap"
        with openai.OpenAI(base_url=endpoint.base_url, api_key="none") as client:
            question = client.chat.completions.create(
                model=endpoint.model, messages=[{"role": "user", "content": "1+1?"}], max_tokens=8, temperature=0
            )
        assert question.usage is not None
        assert question.usage.completion_tokens == 8 or question.choices[0].finish_reason == "stop"


def test_adapters_are_loaded_beside_their_base_as_after_a_cold_start_to_the_bit(adapters: Series) -> None:
    assert adapters.methods == ["cold", "cold", "adapter", "adapter", "cold"]
    assert adapters.infos[4].load_reason == "already loaded"
    first, second, third, first_again, second_again = adapters.answers
    assert first_again == first
    assert second_again == second
    assert first != second != third != first
    ((_, proof),) = every_proof(adapters.work_dir / "certificates")
    assert (proof.is_certificate, proof.kind.way) == (True, "adapter")


def test_an_adapter_is_offered_beside_its_base_and_answers_otherwise(adapters: Series) -> None:
    base, newest = adapters.resident.launch.name, adapters.resident.newest().model
    url = f"http://127.0.0.1:{adapters.resident.launch.port}/v1"
    with openai.OpenAI(base_url=url, api_key="none") as client:
        assert {base, newest} <= {entry.id for entry in client.models.list()}
        said = [
            client.completions.create(model=name, prompt="What is 1 + 1?", max_tokens=24, temperature=0.0)
            for name in (newest, base, newest)
        ]
    first, of_base, again = (answer.choices[0].text for answer in said)
    assert first == again != of_base


def test_nobody_but_the_worker_can_load_an_adapter(adapters: Series) -> None:
    url = f"http://127.0.0.1:{adapters.resident.launch.port}/v1"
    with (
        openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client,
        pytest.raises(openai.APIStatusError) as no,
    ):
        client.post("/load_lora_adapter", body={"lora_name": "x", "lora_path": "/tmp/x"}, cast_to=object)  # noqa: S108
    assert no.value.status_code == 403


def test_vllm_alone_lets_a_base_go_from_under_its_adapters(adapters: Series, tmp_path: Path) -> None:
    """Why an adapter of another base is a new start."""
    resident = adapters.resident
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


@pytest.mark.parametrize(("kind", "victim"), [("plain", "engine core"), ("adapters", "worker")])
def test_a_plan_outlives_a_process_of_its_engine_and_nothing_is_left_of_it(
    kind: str, victim: str, plain: Series, adapters: Series, tmp_path: Path, decoys: list[psutil.Process]
) -> None:
    """Runs after all others: an engine is killed in the middle of a plan, which waits to be tried again."""
    series = {"plain": plain, "adapters": adapters}[kind]
    checkpoint = series.resident.newest().checkpoint
    if kind == "plain":  # what it was started on is gone
        checkpoint = checkpoint_record(write_checkpoint(tmp_path / "checkpoint", seed=0), step=0)
    before, record, log = shared_memory(), record_of(series.work_dir), series.resident.process.log
    queue = a_plan_whose_engine_is_killed(series, checkpoint, victim, tmp_path)
    assert queue.finished() == ()
    assert len(queue.state().waiting) == 1
    assert writers(log, *tmp_path.glob("work/logs/*.log")) == []
    assert not Path(record.tmp_dir).exists()
    assert not list(series.work_dir.glob("engines/*.pid"))
    eventually(lambda: not shared_memory() - before)  # what others have there now goes in the end
    assert all(decoy.is_running() for decoy in decoys)
