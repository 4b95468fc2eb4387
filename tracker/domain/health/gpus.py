"""What is wrong with a GPU, from one reading. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from eval_jobs.records.gpu_health import GpuHealth, ThrottleReason

HARDWARE = {ThrottleReason.HW_THERMAL: "it is too hot", ThrottleReason.HW_POWER_BRAKE: "the power supply asks for it"}
"""Throttle reasons of the hardware. HW_SLOWDOWN accompanies each; alone, it also appears while clocks change."""
_Trouble = tuple[str, str, str]
"""Name, predicate of a sentence about the GPU, and hint."""
MEMORY_ERRORS = "gpu_memory_errors"
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


def gpu_findings(found: GpuHealth, *, known_errors: int = 0) -> tuple[GpuFinding, ...]:
    """Return what is wrong with a GPU; values that are not reported are no finding.

    `known_errors`: memory errors that it had before, which say nothing about this training.
    """
    judges = (_lost, partial(_memory_errors, known=known_errors), _heat, _slowed)
    troubles = (trouble for judge in judges if (trouble := judge(found)) is not None)
    return tuple(
        GpuFinding(name=name, gpu=found.index, sentence=f"GPU {found.index} {text}", hint=hint)
        for name, text, hint in troubles
    )


def gpu_table(gpus: Sequence[GpuHealth]) -> str:
    """Return a line for each GPU; `?` for what is not reported."""
    if not gpus:
        return ""
    lines = ["GPU   busy   memory used   temperature"]
    for gpu in gpus:
        busy = "?" if gpu.busy_pct is None else f"{gpu.busy_pct:.0f} %"
        memory = "?" if gpu.memory is None else f"{gpu.memory.used_bytes / 2**30:.1f} GiB"
        heat = "?" if gpu.temperature_c is None else f"{gpu.temperature_c} °C"
        lines.append(f"{gpu.index:<5} {busy:>5} {memory:>13} {'lost' if gpu.is_lost else heat:>13}")
    return "\n".join(lines)


def _lost(found: GpuHealth) -> _Trouble | None:
    if not found.is_lost:
        return None
    return "gpu_lost", "is lost: its driver cannot reach it", "look for Xid 79 in dmesg, and restart the machine"


def _memory_errors(found: GpuHealth, known: int) -> _Trouble | None:
    count = (found.uncorrected_ecc_errors or 0) - known
    if count <= 0:
        return None
    errors = "1 uncorrected memory error" if count == 1 else f"{count:,} uncorrected memory errors"
    return MEMORY_ERRORS, f"has {errors}", "stop the training, reset the GPU, and replace it if they return"


def _heat(found: GpuHealth) -> _Trouble | None:
    if found.temperature_c is None or not found.slowdown_c or found.temperature_c < found.slowdown_c:
        return None
    text = f"is at {found.temperature_c} °C; from {found.slowdown_c} °C it halves its clocks"
    return "gpu_too_hot", text, COOLING


def _slowed(found: GpuHealth) -> _Trouble | None:
    for reason, why in HARDWARE.items():
        if reason in (found.throttle_reasons or ()):
            is_hot = reason is ThrottleReason.HW_THERMAL
            hint = COOLING if is_hot else "check the power supply of the machine and its cables"
            return "gpu_slowed", f"halves its clocks, because {why}", hint
    return None
