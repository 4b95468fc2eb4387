"""The kernel's messages, from now on. They are of the whole machine: those about other processes are left out."""

import logging
import os
import subprocess
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from eval_jobs.host.proc import has_own_pids
from tracker.domain.health.processes.kernel_messages import is_about

log = logging.getLogger(__name__)

KMSG = Path("/dev/kmsg")
MOST_AT_ONCE = 500
MAX_BYTES = 8 << 10
JOURNALCTL = ("journalctl", "--dmesg", "--quiet", "--no-pager", "--output=json")
KERNEL = "kernel"
JOURNAL_EVERY_S = 15.0
JOURNAL_RETRY_S = 300.0
JOURNAL_TIMEOUT_S = 2.0


class JournalEntry(BaseModel):
    """One message of the journal, which keeps its begin apart: `NVRM: Xid` and `python[7]: segfault`."""

    cursor: str = Field(alias="__CURSOR")
    text: str = Field(alias="MESSAGE")
    name: str = Field(alias="SYSLOG_IDENTIFIER", default=KERNEL)
    pid: str = Field(alias="SYSLOG_PID", default="")

    def message(self) -> str:
        """Return it as the kernel wrote it."""
        if self.name == KERNEL:
            return self.text
        return f"{self.name}[{self.pid}]: {self.text}" if self.pid else f"{self.name}: {self.text}"


def _entry(line: str) -> JournalEntry | None:
    try:
        return JournalEntry.model_validate_json(line)
    except ValidationError:
        return None  # such as a message that is no text


@dataclass(kw_only=True)
class KernelJournal:
    """The kernel's messages in the journal of systemd: some users may read it, but not /dev/kmsg."""

    command: tuple[str, ...] = JOURNALCTL
    clock: Callable[[], float] = time.monotonic
    _cursor: str = ""
    """Where it was read to; empty: not known."""
    _due_at: float = 0.0

    def begin(self) -> bool:
        """Read from now on; return whether the journal can be read."""
        entries = self._entries("--lines=1")
        self._cursor = entries[-1].cursor if entries else ""
        return bool(self._cursor)

    def lines(self) -> list[str]:
        """Return the new messages, at most every `JOURNAL_EVERY_S`."""
        if self.clock() < self._due_at:
            return []
        if not self._cursor:
            self.begin()
            return []
        entries = self._entries(f"--lines={MOST_AT_ONCE}", f"--after-cursor={self._cursor}")
        if entries is None:
            self._cursor = ""  # the entry was deleted, or the disk does not respond
        elif entries:
            self._cursor = entries[-1].cursor
        return [entry.message() for entry in entries or ()]

    def _entries(self, *options: str) -> list[JournalEntry] | None:
        """Return entries; None: the journal cannot be read."""
        self._due_at = self.clock() + JOURNAL_RETRY_S
        try:
            ended = subprocess.run(
                (*self.command, *options),
                capture_output=True,
                text=True,
                errors="replace",
                check=True,
                timeout=JOURNAL_TIMEOUT_S,
            )
        except (OSError, subprocess.SubprocessError):
            return None
        self._due_at = self.clock() + JOURNAL_EVERY_S
        return [entry for entry in map(_entry, ended.stdout.splitlines()) if entry is not None]


@dataclass(kw_only=True)
class KernelLog:
    """Reads /dev/kmsg without waiting, or else the journal; where neither is allowed, it is logged once."""

    path: Path = KMSG
    journal: KernelJournal = field(default_factory=KernelJournal)
    has_own_pids: bool = field(default_factory=has_own_pids)
    """Whether this is a container whose process IDs are not those in the messages."""
    _file: int | None = None
    _has_journal: bool | None = None
    """None: the file was not tried yet."""

    def lines(self, pids: Collection[int], gpus: Collection[str] | None = None) -> list[str]:
        """Return the new messages that are about these processes, or about none.

        `gpus`: `pci_place` of those that these processes use; None: not known.
        """
        if self._file is None and self._has_journal is None:
            self._open()
        messages = self.journal.lines() if self._has_journal else self._of_file()
        known = () if self.has_own_pids else pids
        return [message for message in messages if is_about(message, known, gpus)]

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _of_file(self) -> list[str]:
        found: list[str] = []
        while self._file is not None and len(found) < MOST_AT_ONCE:
            try:
                record = os.read(self._file, MAX_BYTES)
            except BrokenPipeError:
                continue  # older messages were overwritten before they were read
            except OSError:
                break  # there is none
            if not record:
                break
            found.append(record.decode(errors="replace").partition(";")[2].partition("\n")[0])
        return found

    def _open(self) -> None:
        try:
            self._file = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
            with suppress(OSError):
                os.lseek(self._file, 0, os.SEEK_END)
        except OSError as error:
            self._has_journal = self.journal.begin()
            if not self._has_journal:
                log.info("messages of the kernel are not read: %s: %s", self.path, error.strerror or error)
