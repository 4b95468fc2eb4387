"""The condition of the NVIDIA GPUs of this machine, read with NVML.

Drivers differ in what they report, and nvidia-ml-py may be newer than the driver: a value that cannot be read is None.
"""

from contextlib import suppress
from types import ModuleType
from typing import Any

from eval_jobs.errors import ConfigError
from eval_jobs.records.gpu_health import GpuDevice, GpuHealth, GpuMemory, ThrottleReason

TEMPERATURE_OF_GPU = 0
SLOWDOWN_THRESHOLD = 1
UNCORRECTED, VOLATILE = 1, 0
GPU_IS_LOST = 15
"""Of nvml.h, like the numbers above."""
REASONS = {
    0x04: ThrottleReason.SW_POWER_CAP,
    0x08: ThrottleReason.HW_SLOWDOWN,
    0x20: ThrottleReason.SW_THERMAL,
    0x40: ThrottleReason.HW_THERMAL,
    0x80: ThrottleReason.HW_POWER_BRAKE,
}
"""Of nvml.h: nvmlClocksEventReason. The others are settings, or a GPU that has no work."""
PROCESSES = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v2")
CLOCK_EVENTS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
"""The same by the names of newer and older drivers."""

_HINT = "check the NVIDIA driver, and run pip install 'checkpoint-tracker[gpu]'"


def read_gpu_health() -> tuple[GpuHealth, ...]:
    """Return the condition of all GPUs of the machine that are visible to this process.

    Raises:
        ConfigError: the GPUs cannot be queried with NVML.
    """
    try:
        import pynvml as nvml
    except ModuleNotFoundError as error:
        raise ConfigError("cannot query the GPUs: nvidia-ml-py is not installed", hint=_HINT) from error
    try:
        nvml.nvmlInit()
        try:
            return tuple(_Device(nvml, index).health() for index in range(nvml.nvmlDeviceGetCount()))
        finally:
            with suppress(Exception):
                nvml.nvmlShutdown()
    except Exception as error:  # pynvml raises several kinds, which its versions do not share
        raise ConfigError(f"cannot query the GPUs: NVML failed: {error}", hint=_HINT) from error


class _Device:
    """One GPU, each of whose values may be missing."""

    def __init__(self, nvml: ModuleType, index: int) -> None:
        self._nvml = nvml
        self._index = index
        self._is_lost = False
        self._handle = self._called("nvmlDeviceGetHandleByIndex", index)

    def health(self) -> GpuHealth:
        device = self._device()
        busy = self._asked("nvmlDeviceGetUtilizationRates")
        found = GpuHealth(
            index=self._index,
            device=device,
            busy_pct=None if busy is None else float(busy.gpu),
            temperature_c=self._asked("nvmlDeviceGetTemperature", TEMPERATURE_OF_GPU),
            slowdown_c=self._asked("nvmlDeviceGetTemperatureThreshold", SLOWDOWN_THRESHOLD),
            power_w=_watts(self._asked("nvmlDeviceGetPowerUsage")),
            power_limit_w=_watts(self._asked("nvmlDeviceGetEnforcedPowerLimit")),
            throttle_reasons=_reasons(self._first(CLOCK_EVENTS)),
            uncorrected_ecc_errors=self._asked("nvmlDeviceGetTotalEccErrors", UNCORRECTED, VOLATILE),
            memory=self._memory(),
        )
        if self._is_lost:
            return GpuHealth(index=self._index, device=device, is_lost=True)
        return found

    def _device(self) -> GpuDevice:
        place, mode = self._asked("nvmlDeviceGetPciInfo"), self._asked("nvmlDeviceGetPersistenceMode")
        return GpuDevice(
            uuid=_text(self._asked("nvmlDeviceGetUUID")),
            name=_text(self._asked("nvmlDeviceGetName")),
            pci_bus_id=_text(getattr(place, "busId", None)),
            driver=_text(self._called("nvmlSystemGetDriverVersion")),
            is_persistent=None if mode is None else bool(mode),
        )

    def _memory(self) -> GpuMemory | None:
        memory = self._asked("nvmlDeviceGetMemoryInfo")
        if memory is None:
            return None
        processes = self._first(PROCESSES)
        by_process = None
        if processes is not None:
            by_process = {int(one.pid): getattr(one, "usedGpuMemory", None) for one in processes}
        return GpuMemory(used_bytes=int(memory.used), total_bytes=int(memory.total), by_process=by_process)

    def _first(self, names: tuple[str, ...]) -> Any:  # noqa: ANN401 - NVML has no types
        return next((found for name in names if (found := self._asked(name)) is not None), None)

    def _asked(self, name: str, *arguments: int) -> Any:  # noqa: ANN401
        if self._handle is None:
            return None
        return self._called(name, self._handle, *arguments)

    def _called(self, name: str, *arguments: Any) -> Any:  # noqa: ANN401
        """Return what a function of NVML returns; None: the module or the driver lacks it, or the GPU does."""
        try:
            return getattr(self._nvml, name)(*arguments)
        except Exception as error:  # noqa: BLE001 - pynvml raises several kinds, AttributeError among them
            self._is_lost = self._is_lost or getattr(error, "value", None) == GPU_IS_LOST
        return None


def _text(found: bytes | str | None) -> str | None:
    return found.decode(errors="replace") if isinstance(found, bytes) else found


def _watts(milliwatts: int | None) -> float | None:
    if milliwatts is None:
        return None
    return milliwatts / 1000


def _reasons(bits: int | None) -> tuple[ThrottleReason, ...] | None:
    if bits is None:
        return None
    return tuple(reason for bit, reason in REASONS.items() if bits & bit)
