"""A lead in memory, with the rules of the real one."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from datetime import datetime

from eval_jobs.errors import StoreError
from tracker.domain.checkpoints.watching import Leader


@dataclass
class _Shared:
    holder: FakeLead | None = None
    leader: Leader | None = None


@dataclass(eq=False)
class FakeLead:
    """`tracker.ports.Lead`; `trouble` is raised instead of an answer."""

    output_dir: str
    trouble: StoreError | None = None
    _shared: _Shared = field(default_factory=_Shared)

    def another(self, output_dir: str) -> FakeLead:
        """Return the lead of the same run as another process has it."""
        return FakeLead(output_dir, _shared=self._shared)

    def take(self, now: datetime) -> bool:
        if self.trouble is not None:
            raise self.trouble
        if self._shared.holder is None:
            self._shared.holder = self
            host = socket.gethostname()
            self._shared.leader = Leader(host=host, pid=os.getpid(), since=now, output_dir=self.output_dir)
        return self._shared.holder is self

    def leader(self) -> Leader | None:
        if self.trouble is not None:
            raise self.trouble
        return self._shared.leader

    def is_led(self) -> bool:
        if self.trouble is not None:
            raise self.trouble
        return self._shared.holder is not None

    def release(self) -> None:
        if self._shared.holder is self:
            self._shared.holder = None
