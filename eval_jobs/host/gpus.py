"""The NVIDIA GPUs of this machine: read with NVML if nvidia-ml-py is installed, else with `nvidia-smi`.

    busiest_gpu_pct()       # 97.0: share of the last second or less in which a kernel ran, of the busiest GPU
    have_batch_invariance("0,1")

Only the GPUs in CUDA_VISIBLE_DEVICES count, because the engine uses no others. Its numbers are interpreted in PCI bus
order, which CUDA follows with CUDA_DEVICE_ORDER=PCI_BUS_ID; UUIDs are unambiguous.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType

from eval_jobs.errors import ConfigError

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
SMI_TIMEOUT_S = 10.0

BATCH_INVARIANT_FROM = (8, 0)
"""Minimum compute capability for vLLM to make responses independent of the rest of the batch."""

_FIELDS = "index,uuid,utilization.gpu,compute_cap,memory.total,memory.free"
_QUERY = (f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits")
_HINT = "check the NVIDIA driver, run pip install 'checkpoint-tracker[gpu]', or remove serve.only_when.gpu_below_pct"


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU at one moment."""

    index: int
    uuid: str
    busy_pct: float | None
    """Utilization in percent. None: not reported, as with MIG."""
    compute_capability: tuple[int, int] | None = None
    """Such as (9, 0). None: not reported."""
    memory_bytes: int | None = None
    """Total memory. None: not reported."""
    free_bytes: int | None = None
    """Memory that no process uses. None: not reported."""


def busiest_gpu_pct() -> float:
    """Return the utilization of the busiest GPU that an engine would use here, in percent.

    Raises:
        ConfigError: it cannot be determined on this machine.
    """
    visible = os.environ.get(VISIBLE_DEVICES)
    gpus = visible_gpus(read_gpus(), visible)
    if not gpus:
        raise ConfigError(
            f"serve.only_when.gpu_below_pct: no visible GPU ({VISIBLE_DEVICES} is {visible or 'empty or not set'})",
            hint=f"correct {VISIBLE_DEVICES}, or remove this setting on a machine without NVIDIA GPUs",
        )
    silent = [gpu for gpu in gpus if gpu.busy_pct is None]
    if silent:
        raise ConfigError(
            f"serve.only_when.gpu_below_pct: GPU {silent[0].uuid} reports no utilization, as with MIG",
            hint="remove this setting: a MIG slice is not shared",
        )
    return max(gpu.busy_pct or 0.0 for gpu in gpus)


@cache
def have_batch_invariance(visible: str | None) -> bool:
    """Return whether all GPUs that an engine would use can compute independently of the batch; False if unknown.

    Cached for each value of CUDA_VISIBLE_DEVICES: the result for a GPU does not change.
    """
    try:
        gpus = visible_gpus(read_gpus(), visible)
    except ConfigError:
        return False
    return bool(gpus) and all((gpu.compute_capability or (0, 0)) >= BATCH_INVARIANT_FROM for gpu in gpus)


def visible_gpus(gpus: Sequence[Gpu], visible: str | None) -> tuple[Gpu, ...]:
    """Return the GPUs in `visible`, the value of CUDA_VISIBLE_DEVICES; None: all. Pure.

    Like CUDA, it ignores everything after the first name that matches no GPU.
    """
    if visible is None:
        return tuple(gpus)
    found: list[Gpu] = []
    for name in (part.strip() for part in visible.split(",")):
        match = next((gpu for gpu in gpus if _is_called(gpu, name)), None)
        if match is None:
            break
        found.append(match)
    return tuple(found)


def parsed_gpus(table: str) -> tuple[Gpu, ...]:
    """Return the GPUs in the output of `nvidia-smi`; see `_FIELDS`, memory in MiB."""
    rows = ([cell.strip() for cell in line.split(",")] for line in table.splitlines())
    return tuple(
        Gpu(
            index=int(row[0]),
            uuid=row[1],
            busy_pct=_number(row[2]),
            compute_capability=_version(row[3]),
            memory_bytes=_bytes(row[4]),
            free_bytes=_bytes(row[5]),
        )
        for row in rows
        if len(row) == 6 and row[0].isdecimal()
    )


def read_gpus() -> tuple[Gpu, ...]:
    """Return all GPUs of the machine that are visible to this process.

    Raises:
        ConfigError: the GPUs cannot be queried with NVML or `nvidia-smi`.
    """
    try:
        import pynvml as nvml
    except ModuleNotFoundError:
        return _from_smi("nvidia-ml-py is not installed")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:  # the library is installed, but the driver is missing
        return _from_smi(f"NVML failed: {error}")
    try:
        return tuple(_from_nvml(nvml, range(nvml.nvmlDeviceGetCount())))
    except nvml.NVMLError as error:
        raise ConfigError(f"cannot query the GPUs: NVML failed: {error}", hint=_HINT) from error
    finally:
        nvml.nvmlShutdown()


def _is_called(gpu: Gpu, name: str) -> bool:
    if name.isdecimal():
        return gpu.index == int(name)
    return len(name) > len("GPU-") and gpu.uuid.startswith(name)


def _bytes(mebibytes: str) -> int | None:
    if mebibytes.isdecimal():
        return int(mebibytes) << 20
    return None


def _number(text: str) -> float | None:
    if text.isdecimal():
        return float(text)
    return None


def _version(text: str) -> tuple[int, int] | None:
    major, _, minor = text.partition(".")
    if major.isdecimal() and minor.isdecimal():
        return (int(major), int(minor))
    return None


def _from_nvml(nvml: ModuleType, indices: Iterable[int]) -> Iterable[Gpu]:
    for index in indices:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        uuid = nvml.nvmlDeviceGetUUID(handle)
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        try:
            busy_pct: float | None = float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        except nvml.NVMLError:  # not supported
            busy_pct = None
        yield Gpu(
            index=index,
            uuid=uuid.decode() if isinstance(uuid, bytes) else str(uuid),
            busy_pct=busy_pct,
            compute_capability=(int(major), int(minor)),
            memory_bytes=int(memory.total),
            free_bytes=int(memory.free),
        )


def _from_smi(why_not_nvml: str) -> tuple[Gpu, ...]:
    program = shutil.which("nvidia-smi")
    if program is None:
        raise ConfigError(f"cannot query the GPUs: {why_not_nvml}, and nvidia-smi is not installed", hint=_HINT)
    try:
        done = subprocess.run([program, *_QUERY], capture_output=True, text=True, timeout=SMI_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"cannot query the GPUs: nvidia-smi failed: {error}", hint=_HINT) from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no output"]
        raise ConfigError(f"cannot query the GPUs: nvidia-smi failed: {said[-1]}", hint=_HINT)
    return parsed_gpus(done.stdout)
