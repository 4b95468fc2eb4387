"""Facts about GPUs -> findings about a training. Pure."""

from collections.abc import Iterator

from tracker.domain.readiness.finding import Finding, error, info, ok, warning
from tracker.domain.readiness.training import fixes
from tracker.domain.readiness.training.facts import GpuProcess, Host, TrainingGpu, TrainingGpus
from tracker.domain.records.display import bytes_text, count_text

USED_BYTES = 1 << 30
"""Less is used on an idle GPU, by the driver and a display."""


def training_gpu_findings(found: TrainingGpus, wanted: int | None, host: Host) -> Iterator[Finding]:
    """Yield findings about GPUs; `wanted`: how many the training uses, None: not known."""
    yield _visible(found, wanted)
    for gpu in found.gpus:
        yield from _findings_of(gpu, host)
    if any(gpu.is_persistent is False for gpu in found.gpus):
        hint = fixes.on_machine(host, "sudo nvidia-smi -pm 1")
        yield info("GPUs", "persistence mode is off: the driver is loaded again at each start, for seconds", hint)


def _visible(found: TrainingGpus, wanted: int | None) -> Finding:
    if found.is_silent:
        hint = "look for Xid in `dmesg`, and restart the machine if `nvidia-smi` does not respond either"
        return warning("GPUs", "not known: they do not respond", hint)
    why = f": {found.why_unknown}" if found.why_unknown else ""
    if (wanted or 0) > len(found.gpus):
        message = f"{len(found.gpus)} visible here, but the training uses {wanted}{why}"
        return error("GPUs", message, "correct --gpus or CUDA_VISIBLE_DEVICES, or check the driver with `nvidia-smi`")
    if not found.gpus:
        return info("GPUs", f"unknown{why}")
    return ok("GPUs", _described(found))


def _described(found: TrainingGpus) -> str:
    sizes = sorted({gpu.memory_bytes for gpu in found.gpus if gpu.memory_bytes is not None})
    text = str(len(found.gpus))
    if sizes:
        text += f" with {' and '.join(map(bytes_text, sizes))} of memory"
    if found.driver:
        text += f", driver {found.driver}"
    return text


def _findings_of(gpu: TrainingGpu, host: Host) -> Iterator[Finding]:
    subject = f"GPU {gpu.index}"
    if gpu.is_lost:
        hint = "look for Xid 79 in `dmesg` and restart the machine, or set CUDA_VISIBLE_DEVICES to other GPUs"
        yield error(subject, "it has fallen off the bus: the training cannot use it and would stop", hint)
    if gpu.ecc_errors:
        message = f"{count_text(gpu.ecc_errors, 'uncorrected memory error')} since the driver was loaded"
        reset = fixes.on_machine(host, f"sudo nvidia-smi -r -i {gpu.index}")
        hint = f"look for Xid in `dmesg`, drain the GPU and {reset}"
        yield warning(subject, f"{message}: a training ends at the next one, or computes wrong numbers", hint)
    if (gpu.used_bytes or 0) > USED_BYTES or gpu.processes:
        amount = "its memory" if gpu.used_bytes is None else f"{bytes_text(gpu.used_bytes)} of its memory"
        hint = "end these processes, or set CUDA_VISIBLE_DEVICES to other GPUs"
        yield warning(subject, f"{amount} is in use{_users(gpu.processes)}", hint)


def _users(processes: tuple[GpuProcess, ...] | None) -> str:
    """Return who uses a GPU; a container does not see the processes of others."""
    if not processes:
        return " by processes that are not visible here"
    named = (f"{one.pid} of {one.user}" if one.user else str(one.pid) for one in processes[:3])
    more = f" and {len(processes) - 3} more" if len(processes) > 3 else ""
    return f" by {'process' if len(processes) == 1 else 'processes'} {', '.join(named)}{more}"
