"""Table of tracker.toml: how much of our own is kept."""

from __future__ import annotations

from pydantic import Field

from tracker.config.section import Section
from tracker.domain.best.retention import KeepPolicy


class KeepSection(Section):
    """What is kept of every run on our side. The trainer's files are never touched, and scores are kept for ever.

    Beside the last ones, the first checkpoint, `policy.baseline`, the best one of every benchmark and those that are
    not evaluated yet are always kept. `tracker gc --dry-run` shows what would go.
    """

    pins: int = Field(default=8, ge=0)
    """Checkpoints of a run whose weights are kept: the newest ones, and always the first, the best of every benchmark,
    `policy.baseline` and those that are not evaluated yet. A pin takes space once the trainer has deleted its own copy.
    0: every one."""
    samples: int = Field(default=0, ge=0)
    """Checkpoints of a run whose answers are kept as text, chosen in the same way; without them `tracker compare` and
    the report cannot show what the model said. 0: every one."""

    def to_keep(self) -> KeepPolicy:
        """Return the record for the use case."""
        return KeepPolicy(pins=self.pins or None, samples=self.samples or None)
