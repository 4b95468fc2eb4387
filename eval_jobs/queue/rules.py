"""Who may take a plan, for how long, and when trying again is worth it. Pure.

A worker claims a plan for `LEASE_S` and moves the lease every `BEAT_S`. A worker that goes away without a word
loses the plan when the lease runs out; one that stops in good order releases it at once.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from eval_jobs.types import BenchmarkFailure, Claim, EvalRecord

LEASE_S = 60.0
BEAT_S = 2.0
"""Also how fresh the progress note is."""
MAX_ATTEMPTS = 3
"""Tries of a plan whose every benchmark failed for a reason that may pass."""
MAX_LOST = 3
"""Workers that a plan may bring down before it counts as failed."""
FIRST_RETRY_DELAY_S = 10.0


class PlanState(StrEnum):
    """Where a plan is on its way."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    ACKNOWLEDGED = "acknowledged"


def lease_end(now: datetime, lease_s: float = LEASE_S) -> datetime:
    """Return until when a claim made or confirmed `now` holds."""
    return now + timedelta(seconds=lease_s)


def is_claimable(state: PlanState, lease_until: datetime | None, now: datetime) -> bool:
    """Say whether a plan may be taken: it waits, or its worker let the lease run out."""
    if state is PlanState.WAITING:
        return True
    return state is PlanState.RUNNING and lease_until is not None and lease_until <= now


def should_retry(record: EvalRecord, attempt: int) -> bool:
    """Say whether the plan is to be tried again instead of being finished with `record`.

    Only when nothing at all was measured and every benchmark failed for a reason that may pass: a single
    score is worth keeping, and the evaluator would not ask its samples again anyway.
    """
    failures = [o for o in record.outcomes if isinstance(o, BenchmarkFailure) and o.retryable]
    return bool(failures) and len(failures) == len(record.outcomes) and attempt < MAX_ATTEMPTS


def retry_delay_s(attempt: int, first_s: float = FIRST_RETRY_DELAY_S) -> float:
    """Return how long to wait after failed try number `attempt`: 10 s, 30 s, 90 s."""
    return first_s * 3.0 ** (attempt - 1)


def is_worn_out(claim: Claim) -> bool:
    """Say whether the plan took so many workers down with it that it must not be tried again."""
    return claim.lost >= MAX_LOST
