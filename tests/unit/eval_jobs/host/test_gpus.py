"""Only the device is not real: a program prints what `nvidia-smi` prints, a module answers as pynvml does."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from eval_jobs.errors import ConfigError
from eval_jobs.host.gpus import Gpu, busiest_gpu_pct, have_batch_invariance, parsed_gpus, read_gpus, visible_gpus

TABLE = """0, GPU-aaaaaaaa-1, 97, 9.0, 81559, 1559
1, GPU-bbbbbbbb-2, 3, 8.0, 40960, 40960
2, GPU-cccccccc-3, [N/A], 7.5, [N/A], [N/A]
"""
GPUS = parsed_gpus(TABLE)


@pytest.fixture
def no_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)  # importing it raises ModuleNotFoundError


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_nvml: None) -> Path:
    """The program to write, the only one on PATH but for a shell's own."""
    del no_nvml
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path / "nvidia-smi"


def write(program: Path, script: str) -> None:
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


class NvmlError(Exception):
    pass


def nvml(*, init: Exception | None = None, busy_pct: int | None = 42) -> ModuleType:
    def start() -> None:
        if init is not None:
            raise init

    def utilisation(handle: int) -> SimpleNamespace:
        del handle
        if busy_pct is None:
            raise NvmlError("Not Supported")
        return SimpleNamespace(gpu=busy_pct, memory=0)

    module = ModuleType("pynvml")
    vars(module).update(
        NVMLError=NvmlError,
        nvmlInit=start,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUUID=lambda handle: f"GPU-{handle}",
        nvmlDeviceGetCudaComputeCapability=lambda handle: (9, handle),
        nvmlDeviceGetUtilizationRates=utilisation,
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(total=80 << 30, free=8 << 30, handle=handle),
    )
    return module


def test_the_table_of_nvidia_smi_is_read() -> None:
    assert parsed_gpus(TABLE) == (
        Gpu(
            index=0,
            uuid="GPU-aaaaaaaa-1",
            busy_pct=97,
            compute_capability=(9, 0),
            memory_bytes=81559 << 20,
            free_bytes=1559 << 20,
        ),
        Gpu(
            index=1,
            uuid="GPU-bbbbbbbb-2",
            busy_pct=3,
            compute_capability=(8, 0),
            memory_bytes=40960 << 20,
            free_bytes=40960 << 20,
        ),
        Gpu(index=2, uuid="GPU-cccccccc-3", busy_pct=None, compute_capability=(7, 5)),
    )


def test_what_is_no_table_holds_no_gpu() -> None:
    texts = ("", "No devices were found\n", "0, GPU-a\n", "x, GPU-a, 1, 9.0, 1\n")
    assert [text for text in texts if parsed_gpus(text) != ()] == []


def test_the_gpus_are_those_that_cuda_would_show() -> None:
    expected: dict[str | None, list[int]] = {"": [], "-1": [], "GPU-": [], "MIG-aaaaaaaa-1": []}
    expected |= {None: [0, 1, 2], "0,1,2": [0, 1, 2], " 1 , 0": [1, 0], "GPU-bbbb": [1], "1,7,0": [1]}
    assert {visible: [gpu.index for gpu in visible_gpus(GPUS, visible)] for visible in expected} == expected


def test_the_busiest_of_the_workers_own_gpus_decides(smi: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(smi, f"printf '{TABLE}'")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert busiest_gpu_pct() == 97
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-bbbbbbbb-2")
    assert busiest_gpu_pct() == 3


def test_a_gpu_that_does_not_tell_is_an_error_and_not_idle(smi: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(smi, f"printf '{TABLE}'")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    with pytest.raises(ConfigError, match="MIG"):
        busiest_gpu_pct()


def test_no_gpu_at_all_is_an_error_and_not_idle(smi: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(smi, f"printf '{TABLE}'")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(ConfigError, match="no visible GPU"):
        busiest_gpu_pct()


@pytest.mark.usefixtures("smi")
def test_without_nvml_and_nvidia_smi_the_error_says_what_to_install() -> None:
    with pytest.raises(ConfigError, match="nvidia-ml-py is not installed, and nvidia-smi is not installed") as caught:
        busiest_gpu_pct()
    assert "checkpoint-tracker[gpu]" in caught.value.hint


def test_an_nvidia_smi_that_fails_is_quoted(smi: Path) -> None:
    write(smi, "echo 'NVIDIA-SMI has failed because it could not communicate with the driver.'; exit 9")
    with pytest.raises(ConfigError, match="could not communicate"):
        read_gpus()


def test_nvml_is_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    assert read_gpus() == (
        Gpu(index=0, uuid="GPU-0", busy_pct=42, compute_capability=(9, 0), memory_bytes=80 << 30, free_bytes=8 << 30),
    )


def test_nvml_without_a_driver_leaves_it_to_nvidia_smi(smi: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(smi, f"printf '{TABLE}'")
    monkeypatch.setitem(sys.modules, "pynvml", nvml(init=NvmlError("Driver Not Loaded")))
    assert read_gpus() == GPUS


def test_nvml_that_knows_no_load_is_an_error_and_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(busy_pct=None))
    with pytest.raises(ConfigError, match="MIG"):
        busiest_gpu_pct()


def test_batch_invariance_needs_capability_8_on_every_gpu(smi: Path) -> None:
    have_batch_invariance.cache_clear()
    assert have_batch_invariance(None) is False, "nothing tells"
    write(smi, f"printf '{TABLE}'")
    expected = {"0": True, "0,1": True, "0,2": False, "": False}
    assert {visible: have_batch_invariance(visible) for visible in expected} == expected
