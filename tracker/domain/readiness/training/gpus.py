"""Facts about GPUs -> findings about a training. Pure."""

from collections.abc import Iterator

from tracker.domain.readiness.finding import Finding, error, ok, warning
from tracker.domain.readiness.training.facts import GpuProcess, TrainingGpu, TrainingGpus
from tracker.domain.records.display import bytes_text, count_text

USED_BYTES = 1 << 30
"""Less is used on an idle GPU, by the driver and a display."""


def gpu_findings(found: TrainingGpus, wanted: int | None) -> Iterator[Finding]:
    """Yield findings about GPUs; `wanted`: how many the training uses, None: not known."""
    if found.gpus:
        sizes = sorted({bytes_text(gpu.memory_bytes) for gpu in found.gpus if gpu.memory_bytes is not None})
        memory = f" with {' and '.join(sizes)} of memory" if sizes else ""
        driver = f", driver {found.driver}" if found.driver else ""
        yield ok("GPUs", f"{len(found.gpus)}{memory}{driver}")
    elif wanted is None:
        yield ok("GPUs", f"not known: {found.why_unknown}" if found.why_unknown else "none")
    if wanted is not None and wanted > len(found.gpus):
        why = f": {found.why_unknown}" if found.why_unknown else ""
        message = f"{len(found.gpus)} visible here, but the training uses {wanted}{why}"
        yield error("GPUs", message, "correct --gpus or CUDA_VISIBLE_DEVICES, or check the driver with `nvidia-smi`")
    for gpu in found.gpus:
        yield from _findings_of(gpu)
    if any(gpu.is_persistent is False for gpu in found.gpus):
        hint = "run `sudo nvidia-smi -pm 1`"
        yield ok("GPUs", "persistence mode is off: the driver is loaded again at each start, for seconds", hint)


def _findings_of(gpu: TrainingGpu) -> Iterator[Finding]:
    subject = f"GPU {gpu.index}"
    if gpu.ecc_errors:
        message = f"{count_text(gpu.ecc_errors, 'uncorrected memory error')} since the driver was loaded"
        hint = f"look for Xid in `dmesg`, drain the GPU and reset it with `sudo nvidia-smi -r -i {gpu.index}`"
        yield warning(subject, f"{message}: a training ends at the next one, or computes wrong numbers", hint)
    used = None
    if gpu.memory_bytes is not None and gpu.free_bytes is not None:
        used = gpu.memory_bytes - gpu.free_bytes
    is_used = used is not None and used > USED_BYTES
    if is_used or gpu.processes:
        amount = f"{bytes_text(used)} of its memory is in use" if used is not None else "its memory is in use"
        yield warning(subject, f"{amount}{_users(gpu.processes)}", "end these processes, or set CUDA_VISIBLE_DEVICES")


def _users(processes: tuple[GpuProcess, ...] | None) -> str:
    """Return who uses a GPU; a container does not see the processes of others."""
    if not processes:
        return " by processes that are not visible here"
    named = (f"{one.pid} of {one.user}" if one.user else str(one.pid) for one in processes[:3])
    more = f" and {len(processes) - 3} more" if len(processes) > 3 else ""
    return f" by {'process' if len(processes) == 1 else 'processes'} {', '.join(named)}{more}"
