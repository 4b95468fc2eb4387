"""Identifies the machine that an engine runs on, so that latencies of different machines are never compared.

The ID is a hash, because host names are private and records are shared. It changes with the host, its CPU model, its
NVIDIA GPUs and their driver, as latency does. GPUs of other vendors are identified only by the host.
"""

import re
import socket
from pathlib import Path

from eval_jobs.identity import content_hash

PROC = Path("/proc")


def machine_id(proc: Path = PROC) -> str:
    """Return the hash of host, CPU model, GPU models and GPU driver version; unreadable parts count as ""."""
    gpus = sorted(proc.glob("driver/nvidia/gpus/*/information"))
    return content_hash(
        [
            socket.gethostname(),
            _field(proc / "cpuinfo", "model name"),
            [_field(gpu, "Model") for gpu in gpus],
            _driver_version(proc / "driver" / "nvidia" / "version"),
        ]
    )


def device_name(*, on_cpu: bool, proc: Path = PROC) -> str:
    """Return a readable name of the device: the CPU's model, or the GPUs' models and their driver."""
    if on_cpu:
        return f"cpu {_field(proc / 'cpuinfo', 'model name')}".strip()
    models = [_field(gpu, "Model") for gpu in sorted(proc.glob("driver/nvidia/gpus/*/information"))]
    if not models:
        return f"accelerator of machine {machine_id(proc)[:8]}"
    return f"{', '.join(models)}, driver {_driver_version(proc / 'driver' / 'nvidia' / 'version') or 'unknown'}"


_HEAD_BYTES = 4096
"""The fields are at the beginning; the rest of cpuinfo takes 0.1 s on a machine with hundreds of cores."""


def _field(path: Path, name: str) -> str:
    return _found(path, rf"^{name}\s*:\s*(.*?)\s*$")


def _driver_version(path: Path) -> str:
    """Return the number in a line such as `NVRM version: NVIDIA UNIX ... Kernel Module  550.54.15  Tue Mar ...`."""
    return _found(path, r"^NVRM version:.*?\s(\d+(?:\.\d+)+)\s")


def _found(path: Path, pattern: str) -> str:
    """Return the group of `pattern` in the first line of a file that matches; "" if there is none."""
    try:
        with path.open("rb", buffering=0) as file:
            text = file.read(_HEAD_BYTES).decode(errors="replace")
    except OSError:
        return ""
    found = re.search(pattern, text, flags=re.MULTILINE)
    if found:
        return found.group(1)
    return ""
