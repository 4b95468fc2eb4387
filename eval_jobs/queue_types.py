"""What passes between a queue, its workers and its watcher. Frozen, like `types`.

claim = queue.claim(worker="w", now=now, lease_until=now + minute)     # Claim
queue.extend(claim, lease_until=now + minute, progress=progress)
queue.state().running                                                 # Running, ...
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from eval_jobs.records.progress import Progress
from eval_jobs.types import EvalPlan


class Backlog(StrEnum):
    """Which of a run's waiting checkpoints is next, and whether one may be skipped."""

    NEWEST = "newest"
    """The highest step first; the oldest are skipped when too many wait."""
    OLDEST = "oldest"
    """The lowest step first; nothing is skipped."""
    ALL = "all"
    """The highest step first; nothing is skipped."""


@dataclass(frozen=True, kw_only=True)
class Crash:
    """A worker that went away in the middle of a plan, and nobody is known to have killed it."""

    worker: str
    """As it named itself when it took the plan: on which machine, as which process, where its log is."""
    progress: Progress | None
    """The last that it showed; None: it had nothing to show yet."""
    claimed_at: datetime


@dataclass(frozen=True, kw_only=True)
class Hold:
    """Who holds a plan, under which number and for how long."""

    plan_id: str
    worker: str
    attempt: int
    lease_until: datetime


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A worker's hold on a plan."""

    plan: EvalPlan
    worker: str
    attempt: int
    """1 for the first claim; one that was only interrupted does not count."""
    lost: int = 0
    """How often a worker went away in the middle of this plan, whatever the reason."""
    crashes: tuple[Crash, ...] = ()
    """Crashes in a row, oldest first: since the plan last got further."""
    stalled: int = 0
    """Workers that went away in a row, for whatever reason, since the plan last got further."""
    lease_until: datetime

    @property
    def hold(self) -> Hold:
        """The same without the plan."""
        return Hold(plan_id=self.plan.id, worker=self.worker, attempt=self.attempt, lease_until=self.lease_until)


class HoldEnd(StrEnum):
    """Why a plan is taken back from a worker that does not work on it any more."""

    INTERRUPTED = "interrupted"
    """It never began, or gave the plan up itself: as if the claim had not been."""
    KILLED = "killed"
    """Somebody killed the worker: not the plan's fault, unless that never ends."""
    CRASHED = "crashed"
    """It may have been the plan's fault."""


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A plan that waits, without what only a worker needs."""

    plan_id: str
    run_id: str
    step: int
    note: str = ""
    """Why a worker gave it back to wait, one line; empty: it waits for its turn."""
    noted_at: datetime | None = None
    """When a worker last looked whether it may begin; one that still waits looks every minute. None: nobody did."""
    is_sweep: bool = False
    """It is a plan of a sweep, which every checkpoint of the run goes before."""


@dataclass(frozen=True, kw_only=True)
class QueueState:
    """What the queue holds, for display."""

    waiting: tuple[Waiting, ...] = ()
    """The first ones of every run, next first, and then those of sweeps; `rules.SHOWN` at most in all."""
    running: tuple[Running, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    """Plans that are still on their way, by state: waiting, running, finished, skipped."""
    unfinished: Mapping[str, int] = field(default_factory=dict)
    """Plans that wait or run, by run; no entry for none."""


@dataclass(frozen=True, kw_only=True)
class Running:
    """A claimed plan and how far it is."""

    plan: EvalPlan
    worker: str
    since: datetime
    progress: Progress | None = None
    """None: nothing is shown yet."""
