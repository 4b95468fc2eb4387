"""Rules of the queue: order, leases, retries, and when a plan is set aside. Pure.

A worker claims a plan for `LEASE_S` and extends the lease every `BEAT_S`. A worker that disappears loses the plan when
the lease expires, or immediately if another worker on its machine detects it. A worker that stops normally releases
its plan.

A plan is set aside when its workers repeatedly disappear in the middle of it, without progress in between: after
`MAX_CRASHES` crashes that it may have caused, or after `MAX_STALLED` losses of any kind.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from textwrap import shorten

from eval_jobs.backoff import Backoff
from eval_jobs.errors import PlanPoisoned, ServerDied
from eval_jobs.queue_types import Backlog, Claim
from eval_jobs.records.progress import MAX_TEXT_CHARS, progress_text
from eval_jobs.types import BenchmarkFailure, EvalPlan, EvalRecord, ProbeFailure

LEASE_S = 60.0
BEAT_S = 2.0
"""Also the update interval of the shown progress."""
MAX_ATTEMPTS = 4
"""Attempts at a plan with a benchmark that failed with a retryable error."""
FEW_ATTEMPTS = 2
"""Attempts at a plan of which only a latency could not be measured, or whose engine died of an error of its own."""
MAX_CRASHES = 3
MAX_STALLED = 30
"""The probability that random kills hit one plan so many times in a row is negligible."""
MAX_REVIVALS = 3
"""How often in total a plan that was set aside is retried automatically; manual retries are not limited."""
FIRST_RETRY_DELAY_S = 10.0
MAX_LEASE_S = 600.0
SHORT_REASON_CHARS = 60
SHOWN = 20
"""Maximum number of waiting plans in `QueueState`."""
FIRST_PLACE = -(2**62)
"""Before every possible step."""
FIRST_PLACE_OF_SWEEPS = 2**62
"""After every possible step: a sweep waits for the run's own checkpoints, and evaluates one after the other."""


class PlanState(StrEnum):
    """State of a plan."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    ACKNOWLEDGED = "acknowledged"
    SKIPPED = "skipped"
    LEFT_OUT = "left out"
    """Skipped, and recorded by the watcher."""


ON_ITS_WAY = (PlanState.WAITING, PlanState.RUNNING, PlanState.FINISHED, PlanState.SKIPPED)
"""States that still require an action of a worker or the watcher."""


def place_of(plan: EvalPlan, backlog: Backlog, *, keep: bool) -> int:
    """Return a plan's place in the order of its run; the lowest is next."""
    step = plan.checkpoint.step
    if plan.sweep is not None:
        return FIRST_PLACE_OF_SWEEPS + step
    if backlog is Backlog.OLDEST:
        return step
    if keep:
        return FIRST_PLACE
    return -step


def may_skip(backlog: Backlog, *, keep: bool) -> bool:
    """Return whether a plan may be skipped when too many wait."""
    return backlog is Backlog.NEWEST and not keep


def lease_end(now: datetime, lease_s: float = LEASE_S) -> datetime:
    """Return when a lease that is granted or extended `now` ends."""
    return now + timedelta(seconds=lease_s)


def should_retry(record: EvalRecord, claim: Claim) -> bool:
    """Return whether to retry the plan instead of finishing it with `record`.

    One retryable failure is enough: the evaluator reuses the answers that it has kept, and without a retry the results
    that an engine failure interrupted would be missing permanently. A latency that could not be measured, with all
    scores present, justifies one more start of the engine, and so does an engine that named an error when it died.
    """
    passing = {one.code for one in record.outcomes if isinstance(one, BenchmarkFailure) and one.retryable}
    if passing - {ServerDied.code}:
        return tries(claim) < MAX_ATTEMPTS
    if passing or lacks_latency(record):
        return tries(claim) < FEW_ATTEMPTS
    return False


def retry_note(record: EvalRecord, claim: Claim, now: datetime) -> str:
    """Return when and why a plan is tried again, as one line that fits into `Progress.note`, and which log to read."""
    found = (*record.outcomes, *record.probes, *record.reference_probes)
    failures = [one for one in found if isinstance(one, BenchmarkFailure | ProbeFailure)]
    first = next((one for one in failures if isinstance(one, BenchmarkFailure) and one.retryable), failures[0])
    at = now + timedelta(seconds=retry_delay_s(tries(claim)))
    when = f"attempt {tries(claim) + 1} at {at:%H:%M:%S} UTC"
    where = f"log: {record.engine.log}" if record.engine is not None and record.engine.log else first.hint
    width = max(SHORT_REASON_CHARS, MAX_TEXT_CHARS - len(when) - len(where) - 4)
    return f"{when}: {shorten(f'{first.code}: {first.message}', width, placeholder='...')}; {where}"


def may_pass(record: EvalRecord) -> bool:
    """Return whether a benchmark failed with a retryable error."""
    return any(isinstance(o, BenchmarkFailure) and o.retryable for o in record.outcomes)


def lacks_latency(record: EvalRecord) -> bool:
    """Return whether everything was scored but a load could not be timed."""
    is_scored = not any(isinstance(outcome, BenchmarkFailure) for outcome in record.outcomes)
    return is_scored and any(isinstance(p, ProbeFailure) for p in (*record.probes, *record.reference_probes))


def tries(claim: Claim) -> int:
    """Return the number of this attempt, without those that ended with a lost worker: `is_worn_out` counts those."""
    return claim.attempt - claim.lost


def retry_delay_s(tried: int) -> float:
    """Return the seconds to wait after failed attempt number `tried`: 10 s, 30 s, 90 s."""
    return Backoff(first_s=FIRST_RETRY_DELAY_S, factor=3.0).wait_s(tried)


def is_worn_out(claim: Claim) -> bool:
    """Return whether the plan has lost too many workers to be retried."""
    return len(claim.crashes) >= MAX_CRASHES or claim.stalled >= MAX_STALLED


def poisoned(claim: Claim) -> PlanPoisoned:
    """Return the error for a worn-out plan: why it is set aside, and which logs to read."""
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
        hint="see the worker logs, the engine logs in engines/ and the evaluator logs in logs/ beside them; "
        "check whether memory ran out; then evaluate the checkpoint with `tracker evaluate`",
    )


def was_poisoned(record: EvalRecord) -> bool:
    """Return whether the plan of this record was set aside."""
    return any(isinstance(o, BenchmarkFailure) and o.code == PlanPoisoned.code for o in record.outcomes)
