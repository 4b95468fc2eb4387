"""Where a report's facts come from."""

from __future__ import annotations

from dataclasses import dataclass

from eval_jobs.ports import Queue
from tracker.domain.records.types import Policy
from tracker.ports import CurveReader, History


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Where a report's facts come from."""

    history: History
    queue: Queue
    curves: CurveReader
    policy: Policy
