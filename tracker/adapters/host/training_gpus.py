"""The GPUs that a training would use, as `tracker doctor` judges them: each value may be missing, as with MIG."""

import os
from collections.abc import Sequence
from contextlib import suppress

import psutil

from eval_jobs.errors import ConfigError
from eval_jobs.host.gpus import VISIBLE_DEVICES, Gpu, read_gpus, visible_gpus
from eval_jobs.host.nvml.gpu_health import read_gpu_health
from eval_jobs.records.gpu_health import GpuHealth
from tracker.domain.readiness.training.facts import GpuProcess, TrainingGpu, TrainingGpus


def training_gpus() -> TrainingGpus:
    """Return the visible GPUs; without them, why they are not known."""
    with suppress(ConfigError):  # NVML cannot be used, and nvidia-smi may know them
        return _from_health(read_gpu_health())
    try:
        gpus = visible_gpus(read_gpus(), os.environ.get(VISIBLE_DEVICES))
    except ConfigError as failure:
        return TrainingGpus(why_unknown=failure.message)
    found = (TrainingGpu(index=one.index, memory_bytes=one.memory_bytes, free_bytes=one.free_bytes) for one in gpus)
    return TrainingGpus(gpus=tuple(found))


def _from_health(health: Sequence[GpuHealth]) -> TrainingGpus:
    by_index = {one.index: one for one in health}
    gpus = [Gpu(index=one.index, uuid=one.device.uuid or "", busy_pct=one.busy_pct) for one in health]
    visible = visible_gpus(gpus, os.environ.get(VISIBLE_DEVICES))
    return TrainingGpus(
        gpus=tuple(_training_gpu(by_index[gpu.index]) for gpu in visible),
        driver=next((one.device.driver for one in health if one.device.driver), ""),
    )


def _training_gpu(health: GpuHealth) -> TrainingGpu:
    memory = health.memory
    running = None if memory is None else memory.by_process
    return TrainingGpu(
        index=health.index,
        is_lost=health.is_lost,
        memory_bytes=None if memory is None else memory.total_bytes,
        free_bytes=None if memory is None else memory.total_bytes - memory.used_bytes,
        ecc_errors=health.uncorrected_ecc_errors,
        is_persistent=health.device.is_persistent,
        processes=None if running is None else tuple(_process(pid) for pid in running),
    )


def _process(pid: int) -> GpuProcess:
    try:
        return GpuProcess(pid=pid, user=psutil.Process(pid).username())
    except (psutil.Error, KeyError):  # of another container, or ended
        return GpuProcess(pid=pid, user="")
