"""The kernel's messages, from now on. They are of the whole machine: those about other processes are left out."""

import logging
import os
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from eval_jobs.host.proc import has_own_pids

log = logging.getLogger(__name__)

KMSG = Path("/dev/kmsg")
MOST_AT_ONCE = 500
MAX_BYTES = 8 << 10
_PROCESS = re.compile(r"Killed process (\d+)|\btask \S+:(\d+)\b|\bpid='?(\d+)|\[(\d+)\]: segfault|\bPID (\d+)\b")
"""Processes in messages of the memory killer, of hung tasks, of NVIDIA's driver, and of segmentation faults."""
_GPU = re.compile(r"NVRM: .*?\b([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})\b", re.IGNORECASE)
"""A GPU in a message of NVIDIA's driver, such as `NVRM: Xid (PCI:0000:c1:00): 79, GPU has fallen off the bus.`"""


@dataclass(kw_only=True)
class KernelLog:
    """Reads /dev/kmsg without waiting; where that is not allowed, it is logged once."""

    path: Path = KMSG
    has_own_pids: bool = field(default_factory=has_own_pids)
    """Whether this is a container whose process IDs are not those in the messages."""
    _file: int | None = None
    _is_unreadable: bool = False

    def lines(self, pids: Collection[int], gpus: Collection[str] | None = None) -> list[str]:
        """Return the new messages that are about these processes, or about none.

        `gpus`: `pci_place` of those that these processes use; None: not known.
        """
        found: list[str] = []
        file = self._opened()
        while file is not None and len(found) < MOST_AT_ONCE:
            try:
                record = os.read(file, MAX_BYTES)
            except BrokenPipeError:
                continue  # older messages were overwritten before they were read
            except OSError:
                break  # there is none
            if not record:
                break
            message = record.decode(errors="replace").partition(";")[2].partition("\n")[0]
            if is_about(message, () if self.has_own_pids else pids, gpus):
                found.append(message)
        return found

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _opened(self) -> int | None:
        if self._file is None and not self._is_unreadable:
            try:
                self._file = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
                with suppress(OSError):
                    os.lseek(self._file, 0, os.SEEK_END)
            except OSError as error:
                self._is_unreadable = True
                log.info("messages of the kernel are not read: %s: %s", self.path, error.strerror or error)
        return self._file


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
