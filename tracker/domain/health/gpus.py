"""What is wrong with a GPU, from one reading. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from eval_jobs.records.gpu_health import GpuHealth, ThrottleReason

HARDWARE = {
    ThrottleReason.HW_THERMAL: "it is too hot",
    ThrottleReason.HW_POWER_BRAKE: "the power supply asks for it",
}
"""Reasons of the hardware. HW_SLOWDOWN comes with each of them; alone, it is also reported while clocks change."""
COOLING = "check fans, airflow and room temperature; until then the whole training is as slow as this GPU"


@dataclass(frozen=True, kw_only=True)
class GpuFinding:
    """One thing that is wrong with a GPU."""

    name: str
    """`gpu_lost`, `gpu_memory_errors`, `gpu_too_hot` or `gpu_slowed`."""
    gpu: int
    """Index of the GPU."""
    sentence: str
    hint: str


def gpu_findings(found: GpuHealth) -> tuple[GpuFinding, ...]:
    """Return what is wrong with a GPU; values that are not reported are no finding."""
    return tuple(
        GpuFinding(name=name, gpu=found.index, sentence=f"GPU {found.index} {said}", hint=hint)
        for name, said, hint in _troubles(found)
    )


def _troubles(found: GpuHealth) -> Iterator[tuple[str, str, str]]:
    if found.is_lost:
        yield "gpu_lost", "is lost: its driver cannot reach it", "look for Xid 79 in dmesg, and restart the machine"
    if found.uncorrected_ecc_errors:
        count = found.uncorrected_ecc_errors
        errors = "1 uncorrected memory error" if count == 1 else f"{count:,} uncorrected memory errors"
        said = f"has had {errors} since its driver was loaded"
        yield "gpu_memory_errors", said, "stop the training, reset the GPU, and replace it if they return"
    if found.temperature_c is not None and found.slowdown_c and found.temperature_c >= found.slowdown_c:
        said = f"is at {found.temperature_c} °C; from {found.slowdown_c} °C it halves its clocks"
        yield "gpu_too_hot", said, COOLING
    reason = next((one for one in HARDWARE if one in (found.throttle_reasons or ())), None)
    if reason is not None:
        hint = (
            COOLING if reason is ThrottleReason.HW_THERMAL else "check the power supply of the machine and its cables"
        )
        yield "gpu_slowed", f"halves its clocks, because {HARDWARE[reason]}", hint
