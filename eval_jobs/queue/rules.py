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
MAX_ATTEMPTS = 4
"""Tries of a plan of which a benchmark failed for a reason that may pass."""
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


def should_retry(record: EvalRecord, claim: Claim) -> bool:
    """Say whether the plan is to be tried again instead of being finished with `record`.

    One failure that may pass is reason enough: what is measured comes back at once from the answers that the
    evaluator kept, and what the engine took down with it would be missing for good.
    """
    return may_pass(record) and tries(claim) < MAX_ATTEMPTS


def may_pass(record: EvalRecord) -> bool:
    """Say whether a benchmark failed for a reason that may pass."""
    return any(isinstance(o, BenchmarkFailure) and o.retryable for o in record.outcomes)


def tries(claim: Claim) -> int:
    """Return which try this is. A worker that went away in the middle used up none: `is_worn_out` counts those."""
    return claim.attempt - claim.lost


def retry_delay_s(tried: int, first_s: float = FIRST_RETRY_DELAY_S) -> float:
    """Return how long to wait after failed try number `tried`: 10 s, 30 s, 90 s."""
    return first_s * 3.0 ** (tried - 1)


def is_worn_out(claim: Claim) -> bool:
    """Say whether the plan took so many workers down with it that it must not be tried again."""
    return claim.lost >= MAX_LOST
