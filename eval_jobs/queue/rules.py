"""Whose turn it is, who may take a plan, for how long, and when trying again is worth it. Pure.

A worker claims a plan for `LEASE_S` and moves the lease every `BEAT_S`. A worker that goes away without a word
loses the plan when the lease runs out, or at once where another one on its machine sees that it is gone; one that
stops in good order releases it.

A plan is set aside when its workers go away in the middle of it again and again and it gets no further in between:
after `MAX_CRASHES` that may be its own fault, or `MAX_STALLED` of any kind.
"""

from datetime import datetime, timedelta
from enum import StrEnum

from eval_jobs.backoff import Backoff
from eval_jobs.errors import PlanPoisoned
from eval_jobs.queue_types import Backlog, Claim, Hold
from eval_jobs.records.progress import progress_text
from eval_jobs.types import BenchmarkFailure, EvalPlan, EvalRecord, ProbeFailure

LEASE_S = 60.0
BEAT_S = 2.0
"""Also how fresh the shown progress is."""
MAX_ATTEMPTS = 4
"""Tries of a plan of which a benchmark failed for a reason that may pass."""
MAX_PROBE_ATTEMPTS = 2
"""The same where only a latency could not be measured."""
MAX_CRASHES = 3
MAX_STALLED = 30
"""Whoever kills workers at random hits one plan so often in a row with a probability that does not matter."""
MAX_REVIVALS = 3
"""How often in all a plan that was set aside is tried again by itself; a person always may."""
FIRST_RETRY_DELAY_S = 10.0
MAX_LEASE_S = 600.0
SHOWN = 20
"""Waiting plans that `QueueState` names."""
FIRST_PLACE = -(2**62)
"""Before every step that there can be."""
FIRST_PLACE_OF_SWEEPS = 2**62
"""Behind every step: a sweep waits for the run's own checkpoints, and asks one of them after the other."""


class PlanState(StrEnum):
    """Where a plan is on its way."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    ACKNOWLEDGED = "acknowledged"
    SKIPPED = "skipped"
    LEFT_OUT = "left out"
    """Skipped, and taken note of."""


ON_ITS_WAY = (PlanState.WAITING, PlanState.RUNNING, PlanState.FINISHED, PlanState.SKIPPED)
"""States that somebody still has to do something about."""


def place_of(plan: EvalPlan, backlog: Backlog, *, keep: bool) -> int:
    """Return a plan's place among those of its run; the lowest is next."""
    step = plan.checkpoint.step
    if plan.sweep is not None:
        return FIRST_PLACE_OF_SWEEPS + step
    if backlog is Backlog.OLDEST:
        return step
    if keep:
        return FIRST_PLACE
    return -step


def may_skip(backlog: Backlog, *, keep: bool) -> bool:
    """Say whether a plan may be skipped when too many wait."""
    return backlog is Backlog.NEWEST and not keep


def lease_end(now: datetime, lease_s: float = LEASE_S) -> datetime:
    """Return until when a claim made or confirmed `now` holds."""
    return now + timedelta(seconds=lease_s)


def should_retry(record: EvalRecord, claim: Claim) -> bool:
    """Say whether the plan is to be tried again instead of being finished with `record`.

    One failure that may pass is reason enough: what is measured comes back at once from the answers that the
    evaluator kept, and what the engine took down with it would be missing for good. A latency that could not be
    measured beside scores that could is worth one more start of the engine.
    """
    return tries(claim) < (MAX_ATTEMPTS if may_pass(record) else MAX_PROBE_ATTEMPTS if lacks_latency(record) else 1)


def may_pass(record: EvalRecord) -> bool:
    """Say whether a benchmark failed for a reason that may pass."""
    return any(isinstance(o, BenchmarkFailure) and o.retryable for o in record.outcomes)


def lacks_latency(record: EvalRecord) -> bool:
    """Say whether everything was scored and a load could not be timed."""
    is_scored = not any(isinstance(outcome, BenchmarkFailure) for outcome in record.outcomes)
    return is_scored and any(isinstance(p, ProbeFailure) for p in (*record.probes, *record.reference_probes))


def tries(claim: Claim) -> int:
    """Return which try this is. A worker that went away in the middle used up none: `is_worn_out` counts those."""
    return claim.attempt - claim.lost


def retry_delay_s(tried: int, first_s: float = FIRST_RETRY_DELAY_S) -> float:
    """Return how long to wait after failed try number `tried`: 10 s, 30 s, 90 s."""
    return Backoff(first_s=first_s, factor=3.0).wait_s(tried)


def is_worn_out(claim: Claim) -> bool:
    """Say whether so many workers went away in the middle of the plan that it must not be tried again."""
    return len(claim.crashes) >= MAX_CRASHES or claim.stalled >= MAX_STALLED


def poisoned(claim: Claim) -> PlanPoisoned:
    """Return why a worn out plan is set aside, and which logs say more."""
    step = claim.plan.checkpoint.step
    if len(claim.crashes) < MAX_CRASHES:
        return PlanPoisoned(
            f"step {step}: {claim.stalled} consecutive workers were killed before they completed another answer",
            hint="find out what kills them, then evaluate the checkpoint with `tracker evaluate`",
        )
    ends = [(crash.worker, progress_text(crash.progress) or "the start") for crash in claim.crashes]
    last = "; ".join(f"{worker} at {end!r}" for worker, end in ends)
    return PlanPoisoned(
        f"step {step} crashed {len(claim.crashes)} consecutive workers: {last}",
        hint="read the worker logs, and the engine and evaluator logs in logs/ beside them; check whether memory "
        "ran out; then evaluate the checkpoint with `tracker evaluate`",
    )


def was_poisoned(record: EvalRecord) -> bool:
    """Say whether a record tells that its plan was set aside."""
    return any(isinstance(o, BenchmarkFailure) and o.code == PlanPoisoned.code for o in record.outcomes)


def has_run_out(hold: Hold, now: datetime) -> bool:
    """Say whether a plan may be taken from its holder."""
    return hold.lease_until <= now
