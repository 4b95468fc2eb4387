"""Adapters of one base: the base is loaded once, adapters come and go, and nobody ever asks the base beside them.

On the stand-in for vLLM; the real one: test_warm_vllm.py.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from eval_jobs.errors import CheckpointUnreadable
from eval_jobs.serve.process.launch import KEPT_ADAPTERS
from eval_jobs.serve.resident.engine import KNOWN_ANSWERS
from eval_jobs.types import SwapPolicy
from tests.contract.engine_rules import offered_models
from tests.integration.left_behind import record_of
from tests.tiny_model import checkpoint_record, write_lora
from tests.warm_engines import Bench, bench, work_dir

__all__ = ["bench", "work_dir"]


def command_line(work_dir: Path) -> list[str]:
    return Path(f"/proc/{record_of(work_dir).pid}/cmdline").read_text().split("\0")


def test_the_second_adapter_certifies_by_a_cold_start_and_from_then_on_adapters_are_loaded_beside_it(
    bench: Bench, work_dir: Path
) -> None:
    first, second, third = (bench.serve(bench.adapter(seed)) for seed in (1, 2, 3))
    assert [info.load_method for info in (first, second, third)] == ["cold", "cold", "adapter"]
    assert "now certified" in second.load_reason
    assert third.certificate
    (kept,) = work_dir.glob("certificates/*.certificate.json")
    assert json.loads(kept.read_text())["proof"]["kind"]["way"] == "adapter"
    assert len({info.canaries for info in (first, second, third)}) == 3


def test_an_adapter_that_is_loaded_at_run_time_answers_as_after_a_cold_start(bench: Bench) -> None:
    cold = [bench.serve(bench.adapter(seed), swap=SwapPolicy.NEVER) for seed in (1, 2, 3)]
    warm = [bench.serve(bench.adapter(seed)) for seed in (3, 2, 1)]
    assert [info.load_method for info in warm] == ["cold", "cold", "adapter"]
    assert [info.canaries for info in warm] == [info.canaries for info in reversed(cold)]


def test_the_last_few_adapters_stay_loaded_and_the_oldest_goes(bench: Bench) -> None:
    adapters = [bench.adapter(seed) for seed in range(1, KEPT_ADAPTERS + 4)]
    bench.serve_all(*adapters)
    with bench.engine.serving(adapters[-1], bench.spec, progress=lambda _: None) as endpoint:
        base, *loaded = offered_models(endpoint)
    assert len(loaded) == KEPT_ADAPTERS
    assert loaded[-1] == endpoint.model
    assert bench.serve(adapters[-2]).load_reason == "already loaded"
    assert bench.serve(adapters[2]).load_reason.startswith("certified on")
    assert base not in bench.get("/state")["asked"]


def test_the_one_that_was_used_last_stays(bench: Bench) -> None:
    adapters = [bench.adapter(seed) for seed in range(1, KEPT_ADAPTERS + 3)]
    bench.serve_all(*adapters[: KEPT_ADAPTERS + 1])
    bench.serve(adapters[1])
    bench.serve(adapters[-1])
    assert bench.serve(adapters[1]).load_reason == "already loaded"


def test_a_base_is_evaluated_in_an_engine_that_has_no_adapters(bench: Bench, work_dir: Path) -> None:
    """On a CPU a request for the base, in one batch with an adapter's, gets the adapter's answer."""
    adapter = bench.adapter(1)
    assert adapter.base_model is not None
    base = checkpoint_record(Path(adapter.base_model), step=0)
    bench.serve(adapter)
    assert "--enable-lora" in command_line(work_dir)
    info = bench.serve(base)
    assert info.load_reason == "the checkpoint format is full, but the engine was started with lora"
    assert "--enable-lora" not in command_line(work_dir)
    assert bench.get("/state")["names"] == [bench.endpoints[-1].model]
    assert bench.serve(adapter).load_reason == "the checkpoint format is lora, but the engine was started with full"


def test_nothing_that_serves_an_adapter_ever_asks_its_base(bench: Bench) -> None:
    bench.serve_all(*(bench.adapter(seed) for seed in (1, 2, 3, 2, 3)))
    base, *_ = bench.get("/state")["names"]
    asked = bench.get("/state")["asked"]
    assert asked
    assert base not in asked
    assert all(endpoint.model != base for endpoint in bench.endpoints)


def test_an_adapter_of_another_base_is_a_new_start(bench: Bench) -> None:
    bench.serve_all(bench.adapter(1), bench.adapter(2))
    info = bench.serve(bench.adapter(3, base="other"))
    assert info.load_method == "cold"
    assert info.load_reason.startswith("the base model is ")


def test_an_adapter_of_a_rank_that_the_engine_has_no_room_for_is_a_new_start(bench: Bench) -> None:
    bench.serve_all(bench.adapter(1), bench.adapter(2))
    info = bench.serve(bench.adapter(3, rank=16))
    assert info.load_reason == "the maximum adapter rank is 16, but the engine was started with 8"


def test_another_tokenizer_beside_the_adapter_is_a_new_start(bench: Bench) -> None:
    bench.serve_all(bench.adapter(1), bench.adapter(2))
    third = bench.adapter(3)
    Path(third.uri, "chat_template.jinja").write_text("{{ messages }}")
    assert "the adapter's tokenizer or chat template differs" in bench.serve(third).load_reason


def test_a_base_whose_files_changed_is_loaded_again(bench: Bench) -> None:
    bench.serve_all(bench.adapter(1), bench.adapter(2))
    third = bench.adapter(3)
    Path(str(third.base_model), "model.safetensors").touch()
    assert bench.serve(third).load_reason == "files of the base model changed since the engine started"


def test_an_adapter_whose_weights_changed_since_they_were_pinned_is_not_served(bench: Bench) -> None:
    bench.serve_all(bench.adapter(1), bench.adapter(2))
    third = bench.adapter(3)
    write_lora(Path(str(third.base_model)), Path(third.uri), rank=4, seed=9)
    with pytest.raises(CheckpointUnreadable, match="changed after the checkpoint was found"):
        bench.serve(third)


def test_an_adapter_that_is_written_to_right_before_the_engine_reads_it_is_not_served(bench: Bench) -> None:
    bench.serve_all(bench.adapter(1), bench.adapter(2))
    bench.set_mode("adapter-rewritten")
    with pytest.raises(CheckpointUnreadable, match="changed after the checkpoint was found"):
        bench.serve(bench.adapter(3))


def test_a_base_that_is_written_to_while_the_engine_starts_is_loaded_again(bench: Bench) -> None:
    first = bench.adapter(1)

    def write(line: str) -> None:
        if line.startswith("starting the engine"):
            Path(str(first.base_model), "model.safetensors").touch()

    with bench.engine.serving(first, bench.spec, progress=write):
        pass
    assert bench.serve(first).load_reason == "files of the base model changed since the engine started"


def test_what_is_served_again_and_again_is_compared_however_much_came_between(bench: Bench) -> None:
    reference = bench.adapter(1)
    for seed in range(2, KNOWN_ANSWERS + 2):
        bench.serve(reference)
        bench.serve(bench.adapter(seed))
    bench.set_mode("scrambled")
    info = bench.serve(reference)
    assert "outputs differ from those of its previous load" in info.load_reason


def test_an_adapter_that_the_running_engine_refuses_is_a_new_start(bench: Bench) -> None:
    """Its rank is larger than its configuration says to us: the engine knows better."""
    bench.serve_all(bench.adapter(1), bench.adapter(2))
    bench.set_mode("no-adapters")
    info = bench.serve(bench.adapter(3))
    assert info.load_method == "cold"
    assert "the running engine rejected the adapter" in info.load_reason


def test_adapters_that_are_loaded_wrong_at_run_time_are_refused(bench: Bench, work_dir: Path) -> None:
    args = ("--stand-in", "swap-changes-nothing")
    _, second, third = (bench.serve(bench.adapter(seed), args=args) for seed in (1, 2, 3))
    assert "differs from a cold start, now refused" in second.load_reason
    assert third.load_reason.startswith("adapters of this kind are refused")
    assert list(work_dir.glob("certificates/*.refusal.json"))


def test_an_adapter_that_changes_nothing_proves_nothing(bench: Bench, work_dir: Path) -> None:
    """At the first step one half of each product is zero: with or without the adapter, the answers are the base's."""
    bench.serve(bench.adapter(1))
    first_step = bench.adapter(2)
    path = Path(first_step.uri, "adapter_model.safetensors")
    tensors = {name: tensor * (0 if "lora_B" in name else 1) for name, tensor in load_file(path).items()}
    save_file(tensors, path, metadata={"format": "pt"})
    info = bench.serve(checkpoint_record(Path(first_step.uri), base=Path(str(first_step.base_model))))
    assert "not compared: the adapter has no effect" in info.load_reason
    assert not list(work_dir.glob("certificates/*"))


def test_with_swap_never_adapters_are_cold_starts_too_and_cannot_be_loaded(bench: Bench) -> None:
    infos = [bench.serve(bench.adapter(seed), swap=SwapPolicy.NEVER) for seed in (1, 2)]
    assert [info.load_method for info in infos] == ["cold", "cold"]
    assert "VLLM_ALLOW_RUNTIME_LORA_UPDATING" not in bench.get("/environment")


def test_beside_a_base_that_is_only_a_name_every_adapter_is_a_new_start(bench: Bench) -> None:
    named = [replace(bench.adapter(seed), base_model="org/base") for seed in (1, 2)]
    infos = [bench.serve(checkpoint) for checkpoint in named]
    assert infos[1].load_reason == "its base model is not a local folder, so its files are unknown"
