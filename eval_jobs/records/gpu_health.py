"""The condition of one GPU at one moment. None: the driver does not report it, as with MIG or in a container."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class ThrottleReason(StrEnum):
    """Why a GPU lowers its clocks."""

    HW_SLOWDOWN = "hw_slowdown"
    HW_THERMAL = "hw_thermal"
    HW_POWER_BRAKE = "hw_power_brake"
    SW_THERMAL = "sw_thermal"
    SW_POWER_CAP = "sw_power_cap"


@dataclass(frozen=True, kw_only=True)
class GpuMemory:
    """Memory of a GPU."""

    used_bytes: int
    total_bytes: int
    by_process: Mapping[int, int | None] | None = None
    """Bytes by the process ID that the driver knows, which in a container may be another one; {}: none is visible."""


@dataclass(frozen=True, kw_only=True)
class GpuDevice:
    """What does not change of a GPU while a training runs."""

    uuid: str | None = None
    name: str | None = None
    """Such as `NVIDIA H100 80GB HBM3`."""
    pci_bus_id: str | None = None
    """Such as `00000000:C1:00.0`."""
    driver: str | None = None
    """Version of the driver."""
    is_persistent: bool | None = None
    """Whether the driver stays loaded while nothing uses the GPU."""


@dataclass(frozen=True, kw_only=True)
class GpuHealth:
    """The condition of one GPU."""

    index: int
    device: GpuDevice = field(default_factory=GpuDevice)
    is_lost: bool = False
    """Whether the GPU has fallen off the bus; nothing else is known of it."""
    busy_pct: float | None = None
    temperature_c: int | None = None
    slowdown_c: int | None = None
    """Temperature from which this GPU halves its clocks."""
    power_w: float | None = None
    power_limit_w: float | None = None
    throttle_reasons: tuple[ThrottleReason, ...] | None = None
    uncorrected_ecc_errors: int | None = None
    """Since the driver was loaded."""
    memory: GpuMemory | None = None
