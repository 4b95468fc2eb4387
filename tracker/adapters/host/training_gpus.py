"""What a training needs to know about the GPUs: each value may be missing, as with MIG or in a container."""

import os
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import TypeVar

import psutil

from eval_jobs.errors import ConfigError
from eval_jobs.host.gpus import VISIBLE_DEVICES, Gpu, read_gpus, visible_gpus
from tracker.domain.readiness.training.facts import GpuProcess, TrainingGpu, TrainingGpus

Value = TypeVar("Value")


def training_gpus() -> TrainingGpus:
    """Return the visible GPUs; without them, why they are not known."""
    try:
        gpus = visible_gpus(read_gpus(), os.environ.get(VISIBLE_DEVICES))
    except ConfigError as failure:
        return TrainingGpus(why_unknown=failure.message)
    try:
        import pynvml as nvml

        nvml.nvmlInit()
    except Exception:  # noqa: BLE001 - missing or without a driver: its errors are its own
        plain = (TrainingGpu(index=one.index, memory_bytes=one.memory_bytes, free_bytes=one.free_bytes) for one in gpus)
        return TrainingGpus(gpus=tuple(plain))
    try:
        driver = _optional(lambda: str(nvml.nvmlSystemGetDriverVersion()))
        return TrainingGpus(gpus=tuple(_with_state(nvml, gpu) for gpu in gpus), driver=driver or "")
    finally:
        nvml.nvmlShutdown()


def _with_state(nvml: ModuleType, gpu: Gpu) -> TrainingGpu:
    handle = _optional(lambda: nvml.nvmlDeviceGetHandleByIndex(gpu.index))
    running = _optional(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    mode = _optional(lambda: nvml.nvmlDeviceGetPersistenceMode(handle))
    return TrainingGpu(
        index=gpu.index,
        memory_bytes=gpu.memory_bytes,
        free_bytes=gpu.free_bytes,
        ecc_errors=_optional(lambda: int(nvml.nvmlDeviceGetTotalEccErrors(handle, _UNCORRECTED, _VOLATILE))),
        is_persistent=None if mode is None else bool(mode),
        processes=None if running is None else tuple(_process(one.pid) for one in running),
    )


_UNCORRECTED, _VOLATILE = 1, 0
"""NVML_MEMORY_ERROR_TYPE_UNCORRECTED and NVML_VOLATILE_ECC: since the driver was loaded."""


def _optional(read: Callable[[], Value]) -> Value | None:
    """Return a value; None: this driver, device or version of pynvml does not have it."""
    with suppress(Exception):  # pynvml raises several kinds, AttributeError among them
        return read()
    return None


def _process(pid: int) -> GpuProcess:
    try:
        return GpuProcess(pid=pid, user=psutil.Process(pid).username())
    except (psutil.Error, KeyError):  # of another container, or ended
        return GpuProcess(pid=pid, user="")
