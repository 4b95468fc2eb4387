"""Records exchanged between a queue, its workers and its watcher. Frozen, like those in `types`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from eval_jobs.records.progress import Progress
from eval_jobs.types import EvalPlan


class Backlog(StrEnum):
    """The order of a run's waiting checkpoints, and whether checkpoints may be skipped."""

    NEWEST = "newest"
    """The highest step first; the oldest are skipped when too many wait."""
    OLDEST = "oldest"
    """The lowest step first; nothing is skipped."""
    ALL = "all"
    """The highest step first; nothing is skipped."""


@dataclass(frozen=True, kw_only=True)
class Crash:
    """A worker that disappeared in the middle of a plan and is not known to have been killed from outside."""

    worker: str
    """Name from its claim: machine, process ID and path of its log."""
    progress: Progress | None
    """Last reported progress. None: none was reported."""
    claimed_at: datetime


@dataclass(frozen=True, kw_only=True)
class Hold:
    """A claim without the plan's content: worker, number of the claim and end of the lease."""

    plan_id: str
    worker: str
    attempt: int
    lease_until: datetime


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A plan claimed by a worker, with the history of its earlier claims."""

    plan: EvalPlan
    worker: str
    attempt: int
    """Number of the claim, from 1; interrupted claims do not count."""
    lost: int = 0
    """Number of workers that crashed or were killed in the middle of this plan."""
    crashes: tuple[Crash, ...] = ()
    """Consecutive crashes since the plan last made progress, oldest first."""
    stalled: int = 0
    """Number of consecutive workers that crashed or were killed since the plan last made progress."""
    lease_until: datetime

    @property
    def hold(self) -> Hold:
        """The claim without the plan's content."""
        return Hold(plan_id=self.plan.id, worker=self.worker, attempt=self.attempt, lease_until=self.lease_until)


class HoldEnd(StrEnum):
    """Why a plan is taken back from a worker that no longer works on it."""

    INTERRUPTED = "interrupted"
    """The worker never began, or released the plan itself. The claim does not count."""
    KILLED = "killed"
    """The worker was killed from outside. Not caused by the plan, unless it keeps happening."""
    CRASHED = "crashed"
    """The plan may have caused the crash."""


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A waiting plan, without the fields that only a worker needs."""

    plan_id: str
    run_id: str
    step: int
    note: str = ""
    """Why a worker released it, in one line. Empty: it waits for its turn."""
    noted_at: datetime | None = None
    """When a worker last checked whether it may begin; a waiting worker checks every minute. None: never checked."""
    is_sweep: bool = False
    """Whether it belongs to a sweep. The run's own checkpoints come before sweeps."""


@dataclass(frozen=True, kw_only=True)
class QueueState:
    """Content of the queue, for display."""

    waiting: tuple[Waiting, ...] = ()
    """Ordered by run, next plan first; sweeps come last. At most `rules.SHOWN` plans in total."""
    running: tuple[Running, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    """Number of open plans by state: waiting, running, finished, skipped."""
    unfinished: Mapping[str, int] = field(default_factory=dict)
    """Number of waiting and running plans by run; runs without such plans have no entry."""


@dataclass(frozen=True, kw_only=True)
class Running:
    """A claimed plan and its progress."""

    plan: EvalPlan
    worker: str
    since: datetime
    progress: Progress | None = None
    """None: not reported yet."""
