"""The kernel's messages, from now on. They are of the whole machine: those about other processes are left out."""

import logging
import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from eval_jobs.host.proc import has_own_pids
from tracker.domain.health.processes.kernel_messages import is_about

log = logging.getLogger(__name__)

KMSG = Path("/dev/kmsg")
MOST_AT_ONCE = 500
MAX_BYTES = 8 << 10


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
