"""Data sources of a report."""

from dataclasses import dataclass

from eval_jobs.ports import QueueStatus
from tracker.domain.records.types import Policy
from tracker.ports import CurveReader, RunHistory


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Data sources of a report."""

    history: RunHistory
    queue: QueueStatus
    curves: CurveReader
    policy: Policy
