"""The GPUs that a training would use, as `tracker doctor` judges them: each value may be missing, as with MIG."""

import os

import psutil

from eval_jobs.errors import ConfigError
from eval_jobs.host.gpus import VISIBLE_DEVICES, Gpu, read_gpus, visible_gpus
from eval_jobs.host.nvml.gpu_health import read_gpu_health
from eval_jobs.records.gpu_health import GpuHealth
from tracker.domain.readiness.training.facts import GpuProcess, TrainingGpu, TrainingGpus


def training_gpus() -> TrainingGpus:
    """Return the visible GPUs; without them, why they are not known."""
    try:
        gpus = visible_gpus(read_gpus(), os.environ.get(VISIBLE_DEVICES))
    except ConfigError as failure:
        return TrainingGpus(why_unknown=failure.message)
    try:
        health = {one.index: one for one in read_gpu_health()}
    except ConfigError:  # the GPUs are known from nvidia-smi
        health = {}
    found = tuple(_training_gpu(gpu, health.get(gpu.index) or GpuHealth(index=gpu.index)) for gpu in gpus)
    drivers = {one.device.driver for one in health.values()} - {None}
    return TrainingGpus(gpus=found, driver=next((name for name in drivers if name), ""))


def _training_gpu(gpu: Gpu, health: GpuHealth) -> TrainingGpu:
    running = None if health.memory is None else health.memory.by_process
    return TrainingGpu(
        index=gpu.index,
        memory_bytes=gpu.memory_bytes,
        free_bytes=gpu.free_bytes,
        ecc_errors=health.uncorrected_ecc_errors,
        is_persistent=health.device.is_persistent,
        processes=None if running is None else tuple(_process(pid) for pid in running),
    )


def _process(pid: int) -> GpuProcess:
    try:
        return GpuProcess(pid=pid, user=psutil.Process(pid).username())
    except (psutil.Error, KeyError):  # of another container, or ended
        return GpuProcess(pid=pid, user="")
