"""Only the device is not real: a module answers as pynvml does, as far as the driver has its functions."""

import os
import sys
from types import ModuleType, SimpleNamespace

import psutil
import pytest

from tracker.adapters.host.training_gpus import training_gpus
from tracker.domain.readiness.training.facts import GpuProcess, TrainingGpu, TrainingGpus

GIB = 1 << 30
GONE_PID = 1 << 30


class NvmlError(Exception):
    pass


class MismatchError(Exception):
    """pynvml raises one that is no NVMLError if a function is newer than the driver."""


def nvml(**more: object) -> ModuleType:
    """Return a module with what every driver has, and `more`."""
    module = ModuleType("pynvml")
    vars(module).update(
        NVMLError=NvmlError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUUID=lambda handle: f"GPU-{handle}",
        nvmlDeviceGetCudaComputeCapability=lambda handle: (9, handle),
        nvmlDeviceGetUtilizationRates=lambda handle: SimpleNamespace(gpu=handle),
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(
            total=80 * GIB, free=(8 + handle) * GIB, used=(72 - handle) * GIB
        ),
    )
    vars(module).update(more)
    return module


def missing(*given: object) -> None:
    del given
    raise NvmlError("Function Not Found")


def mismatching(*given: object) -> None:
    del given
    raise MismatchError


@pytest.fixture(autouse=True)
def _all_are_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_each_value_of_a_gpu_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    running = {0: [], 1: [SimpleNamespace(pid=os.getpid()), SimpleNamespace(pid=GONE_PID)]}
    module = nvml(
        nvmlSystemGetDriverVersion=lambda: "550.54.15",
        nvmlDeviceGetComputeRunningProcesses=lambda handle: running[handle],
        nvmlDeviceGetPersistenceMode=lambda handle: handle,
        nvmlDeviceGetTotalEccErrors=lambda handle, error, counter: handle * 100 + error * 10 + counter,
    )
    monkeypatch.setitem(sys.modules, "pynvml", module)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    user = psutil.Process().username()
    gpu = TrainingGpu(
        index=1,
        memory_bytes=80 * GIB,
        free_bytes=9 * GIB,
        ecc_errors=110,  # uncorrected, volatile
        is_persistent=True,
        processes=(GpuProcess(pid=os.getpid(), user=user), GpuProcess(pid=GONE_PID, user="")),
    )
    assert training_gpus() == TrainingGpus(gpus=(gpu,), driver="550.54.15")


@pytest.mark.parametrize("lacking", [None, missing, mismatching])
def test_a_value_that_the_driver_does_not_have_is_not_known(monkeypatch: pytest.MonkeyPatch, lacking: object) -> None:
    names = ("SystemGetDriverVersion", "DeviceGetComputeRunningProcesses", "DeviceGetPersistenceMode")
    module = nvml(**{f"nvml{name}": lacking for name in (*names, "DeviceGetTotalEccErrors") if lacking})
    monkeypatch.setitem(sys.modules, "pynvml", module)
    gpus = tuple(TrainingGpu(index=n, memory_bytes=80 * GIB, free_bytes=(8 + n) * GIB) for n in (0, 1))
    assert training_gpus() == TrainingGpus(gpus=gpus)


def test_without_a_driver_the_reason_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(nvmlInit=missing))
    monkeypatch.setenv("PATH", "")
    found = training_gpus()
    assert (found.gpus, "NVML failed: Function Not Found" in found.why_unknown) == ((), True)
