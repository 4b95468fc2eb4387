"""Only the device is not real: a module answers as pynvml does, as far as the driver has its functions."""

import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import psutil
import pytest

from tests.unit.eval_jobs.host.nvml.driver import said_with_driver
from tracker.adapters.host.training_gpus import training_gpus
from tracker.domain.readiness.training.facts import GpuProcess, TrainingGpu, TrainingGpus

EXAMINE = """
import json
from tracker.adapters.host.training_gpus import training_gpus
from tracker.domain.readiness.training.facts import Host
from tracker.domain.readiness.training.gpus import training_gpu_findings
findings = training_gpu_findings(training_gpus(), None, Host())
print(json.dumps([f"{one.level} {one.subject}: {one.message}" for one in findings]))
"""
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


@pytest.mark.parametrize("driver", ["WHOLE", "HALF", "LOST"])
def test_the_gpus_of_a_driver_that_lacks_a_function_are_known_and_a_lost_one_is_an_error(
    tmp_path: Path, driver: str
) -> None:
    said = said_with_driver(tmp_path, driver, EXAMINE)
    assert said[0] == "ok GPUs: 2 with 80.0 kB of memory, driver 550.54.15"
    errors = [one for one in said if one.startswith("error")]
    assert errors == ["error GPU 1: it has fallen off the bus: the training cannot use it and would stop"] * (
        driver == "LOST"
    )
    assert any(one.startswith("warning GPU 0: 2 uncorrected memory errors") for one in said) == (driver != "HALF")


def test_without_a_driver_the_reason_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(nvmlInit=missing))
    monkeypatch.setenv("PATH", "")
    found = training_gpus()
    assert (found.gpus, "NVML failed: Function Not Found" in found.why_unknown) == ((), True)
