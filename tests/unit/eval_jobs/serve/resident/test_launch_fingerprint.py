"""What makes two checkpoints share a process: every setting, but for those that are named, and what engines read."""

from dataclasses import fields, replace
from pathlib import Path

import pytest

from eval_jobs.serve.resident.launch_fingerprint import NOT_OF_THE_PROCESS, difference, launch_fingerprint
from eval_jobs.serve.resident.order import Order, take_order
from eval_jobs.types import Between, ServeSpec
from tests.tiny_model import checkpoint_record, write_checkpoint, write_lora


@pytest.fixture
def order(tmp_path: Path) -> Order:
    return take_order(checkpoint_record(write_checkpoint(tmp_path / "checkpoint")), ServeSpec())


def test_every_setting_counts_unless_it_is_named_as_one_that_does_not(order: Order) -> None:
    counted = {name.removeprefix("serve.") for name in launch_fingerprint(order, {}) if name.startswith("serve.")}
    assert counted | NOT_OF_THE_PROCESS == {field.name for field in fields(ServeSpec)}
    assert not counted & NOT_OF_THE_PROCESS


def test_whether_an_engine_may_sleep_counts_where_it_can(order: Order) -> None:
    sleeping = replace(order, spec=replace(order.spec, between=Between.SLEEP))
    assert launch_fingerprint(sleeping, {}) == launch_fingerprint(order, {})
    on_gpu = replace(order, on_cpu=False)
    assert "sleep mode is True" in difference(
        launch_fingerprint(on_gpu, {}), launch_fingerprint(replace(sleeping, on_cpu=False), {})
    )


@pytest.mark.parametrize("name", ["VLLM_USE_V1", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "LD_PRELOAD", "TORCH_LOGS"])
def test_a_variable_that_engines_read_counts_and_its_value_is_shown_to_nobody(order: Order, name: str) -> None:
    said = difference(launch_fingerprint(order, {}), launch_fingerprint(order, {name: "a value"}))
    assert said == "the environment changed since the engine started"


@pytest.mark.parametrize("name", ["HOME", "TRACKER_ENGINE_KEY", "VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "TMPDIR"])
def test_other_variables_and_places_of_caches_do_not(order: Order, name: str) -> None:
    assert launch_fingerprint(order, {}) == launch_fingerprint(order, {name: "a value"})


def test_another_rank_of_the_same_class_is_the_same_process(tmp_path: Path) -> None:
    base = write_checkpoint(tmp_path / "base")
    prints = [
        launch_fingerprint(
            take_order(checkpoint_record(write_lora(base, tmp_path / f"{r}", rank=r), base=base), ServeSpec()), {}
        )
        for r in (4, 8, 16)
    ]
    assert prints[0] == prints[1]
    assert difference(prints[1], prints[2]) == ("the maximum adapter rank is 16, but the engine was started with 8")


def test_a_long_value_is_not_repeated_in_a_reason() -> None:
    assert difference({"serve.args": ""}, {"serve.args": "x" * 500}) == (
        'serve.args is (too long to show), but the engine was started with ""'
    )
