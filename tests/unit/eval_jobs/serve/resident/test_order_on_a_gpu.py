"""What is different where there is a GPU. Only the device is not real: a file like its driver's, and `nvidia-smi`."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eval_jobs.host.gpus import have_batch_invariance
from eval_jobs.serve.resident import order as order_module
from eval_jobs.serve.resident.order import Order, take_order
from eval_jobs.types import EngineKind, ServeSpec
from tests.tiny_model import checkpoint_record, write_checkpoint

TakeOrder = Callable[..., Order]


@pytest.fixture
def take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TakeOrder:
    """Take an order for a checkpoint, on a machine with GPUs of a compute capability."""
    checkpoint = checkpoint_record(write_checkpoint(tmp_path / "checkpoint"), step=100)

    def taken(*, capability: str, told: str | None = None, **settings: Any) -> Order:
        driver = tmp_path / "nvidiactl"
        driver.touch()
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\necho '0, GPU-aaaaaaaa-1, 0, {capability}, 81559, 81559'\n")
        program.chmod(0o755)
        monkeypatch.setattr(order_module, "ACCELERATORS", (str(driver),))
        monkeypatch.setitem(sys.modules, "pynvml", None)
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.delenv("VLLM_BATCH_INVARIANT", raising=False)
        if told is not None:
            monkeypatch.setenv("VLLM_BATCH_INVARIANT", told)
        have_batch_invariance.cache_clear()
        return take_order(checkpoint, ServeSpec(python=sys.executable, **settings))

    return taken


@pytest.mark.parametrize(("capability", "expected"), [("8.0", True), ("9.0", True), ("12.0", True), ("7.5", False)])
def test_batch_invariance_is_used_where_the_gpu_can_do_it(take: TakeOrder, capability: str, *, expected: bool) -> None:
    order = take(capability=capability)
    assert not order.on_cpu
    assert order.is_batch_invariant is expected


@pytest.mark.parametrize(("told", "expected"), [("0", False), ("1", True)])
def test_the_workers_own_variable_decides_against_what_the_gpu_can_do(
    take: TakeOrder, told: str, *, expected: bool
) -> None:
    assert take(capability="7.5" if expected else "9.0", told=told).is_batch_invariant is expected


@pytest.mark.parametrize(("args", "expected"), [((), False), (("--enable-deterministic-inference",), True)])
def test_sglang_is_independent_of_the_batch_where_its_own_argument_says_so(
    take: TakeOrder, args: tuple[str, ...], *, expected: bool
) -> None:
    order = take(capability="9.0", engine=EngineKind.SGLANG, args=args)
    assert order.is_batch_invariant is expected


def test_the_gpus_of_an_engine_are_counted_for_its_costs(take: TakeOrder) -> None:
    assert take(capability="9.0").gpus == 1
    assert take(capability="9.0", args=("--tensor-parallel-size", "4")).gpus == 4


def test_on_a_cpu_there_are_no_gpus_and_no_batch_invariance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, take: TakeOrder
) -> None:
    take(capability="9.0")
    monkeypatch.setattr(order_module, "ACCELERATORS", (str(tmp_path / "nothing"),))
    order = take_order(checkpoint_record(tmp_path / "checkpoint", step=100), ServeSpec(python=sys.executable))
    assert (order.on_cpu, order.gpus, order.is_batch_invariant) == (True, 0, False)
