"""What the suites of the queue share: plans, times, and a worker in one line."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from eval_jobs.identity import make_plan
from eval_jobs.ports import Queue
from eval_jobs.queue_types import Claim
from eval_jobs.records.progress import Progress, Stage
from eval_jobs.types import BenchmarkFailure, EvalPlan, EvalRecord
from tests.records import forgetting_run

NOW = datetime(2026, 3, 14, 12, 0, tzinfo=UTC)
LEASE_S = 60
LEASE_END = NOW + timedelta(seconds=LEASE_S)
AFTER_LEASE = NOW + timedelta(seconds=LEASE_S)
RECORDS = forgetting_run(checkpoints=4, samples=2, trouble=True).records
PLANS = tuple(record.plan for record in RECORDS)

Reopen = Callable[[], Queue]
"""Another handle on the same queue, as another process has it."""


def claim(queue: Queue, worker: str = "a", now: datetime = NOW) -> Claim:
    taken = queue.claim(worker=worker, now=now, lease_until=now + timedelta(seconds=LEASE_S))
    assert taken is not None
    return taken


def nothing_to_claim(queue: Queue, now: datetime = NOW) -> bool:
    return queue.claim(worker="z", now=now, lease_until=now + timedelta(seconds=LEASE_S)) is None


def waiting(queue: Queue) -> list[str]:
    """Return the ids of the plans that wait."""
    return [one.plan_id for one in queue.state().waiting]


def ids(*plans: EvalPlan) -> list[str]:
    return [plan.id for plan in plans]


def record_of(taken: Claim) -> EvalRecord:
    return next(record for record in RECORDS if record.plan.id == taken.plan.id)


def plan_at(step: int, run_id: str = "run", suite: str = "") -> EvalPlan:
    """Return the plan of another checkpoint, measured as the recorded ones."""
    first = PLANS[0]
    checkpoint = replace(first.checkpoint, run_id=run_id, step=step, digest=f"{step:064x}")
    return make_plan(checkpoint, replace(first.suite, name=suite or first.suite.name), first.serve, first.loads)


def with_failure(record: EvalRecord, code: str = "E") -> EvalRecord:
    failure = BenchmarkFailure(benchmark="facts", fingerprint="", code=code, message="", hint="", retryable=False)
    return replace(record, outcomes=(failure, *record.outcomes[1:]))


def without_failures(record: EvalRecord) -> EvalRecord:
    return replace(record, outcomes=tuple(o for o in record.outcomes if not isinstance(o, BenchmarkFailure)))


def as_it_is(plan: EvalPlan) -> EvalPlan:
    """Renew nothing."""
    return plan


def fail(queue: Queue, plan: EvalPlan) -> None:
    """Bring `plan`, the next one to be claimed, to a record that holds a failure."""
    queue.add(plan, now=NOW)
    taken = claim(queue)
    assert taken.plan == plan
    assert queue.finish(taken, with_failure(record_of(taken)), now=NOW)


def loading(note: str) -> Progress:
    """Return what an engine's word is kept as."""
    return Progress(stage=Stage.LOADING, note=note)
