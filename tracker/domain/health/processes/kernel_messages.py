"""Which processes and GPUs a message of the kernel is about. Pure."""

import re
from collections.abc import Collection

_PROCESS = re.compile(r"Killed process (\d+)|\btask \S+:(\d+)\b|\bpid='?(\d+)|\[(\d+)\]: segfault|\bPID (\d+)\b")
"""Processes in messages of the memory killer, of hung tasks, of NVIDIA's driver, and of segmentation faults."""
_GPU = re.compile(r"NVRM: .*?\b([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})\b", re.IGNORECASE)
"""A GPU in a message of NVIDIA's driver, such as `NVRM: Xid (PCI:0000:c1:00): 79, GPU has fallen off the bus.`"""


def is_about(message: str, pids: Collection[int], gpus: Collection[str] | None = None) -> bool:
    """Return whether a message is about one of these processes or of their GPUs, or names none."""
    named = [int(number) for match in _PROCESS.finditer(message) for number in match.groups() if number]
    if named:
        return any(pid in pids for pid in named)
    gpu = _GPU.match(message)
    return gpu is None or gpus is None or pci_place(gpu[1]) in gpus


def pci_place(address: str) -> str:
    """Return a PCI address in one form: NVML writes `00000000:C1:00.0`, the kernel `0000:c1:00`."""
    domain, _, rest = address.lower().partition(":")
    return f"{domain.lstrip('0')}:{rest.partition('.')[0]}" if rest else ""
