"""What the use cases work with: settings, the ports to the outside, and the state of a watcher."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from eval_jobs.host.unforeseen import SetAside
from eval_jobs.queue_types import Backlog
from eval_jobs.types import Benchmark, Checkpoint, EvalRecord, ProbeLoad, ServeSpec, Suite
from tracker.app.steps.alerting import AlertDispatcher
from tracker.app.steps.collect import Keeping
from tracker.app.steps.curves import curves_at, keep_curves
from tracker.app.steps.screening import ScreeningSchedule
from tracker.app.steps.sweeps import SweepService
from tracker.domain.best.retention import Identity, identity_of
from tracker.domain.log.events import RunEvent, found
from tracker.domain.records.alerts import AlertKind
from tracker.domain.records.calibration import Calibration
from tracker.domain.records.policy import Policy
from tracker.domain.records.types import Gap, Report
from tracker.domain.sweeps.types import Turn
from tracker.domain.verdicts.screening import Screening
from tracker.ports import CheckpointSource, CurveReader, RunHistory, Tracking, WatchedQueue

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class MeasurementPlan:
    """What is measured at every checkpoint, and how the checkpoint is served."""

    suites: tuple[Suite, ...]
    serve: ServeSpec
    loads: tuple[ProbeLoad, ...]
    reference: Checkpoint | Literal["first"] | None = None
    """Checkpoint that latency is compared with; `first`: the first one of each run; None: no comparison."""
    screening: Screening | None = None
    """None: every checkpoint is evaluated on all samples."""
    questions_of: Callable[[Benchmark], int | None] = lambda _: None
    """Returns the number of answers that a benchmark asks for; None: unknown before it is asked."""


@dataclass(frozen=True, kw_only=True)
class QueueOrder:
    """Which of a run's waiting checkpoints is next, and how many may wait."""

    backlog: Backlog = Backlog.NEWEST
    max_waiting: int = 20
    """Checkpoints that may wait; beyond it the oldest are skipped, if the backlog allows it."""
    reask_wait_s: float = 0.0
    """Seconds before evaluated checkpoints are asked what other settings lack."""


@dataclass(frozen=True, kw_only=True)
class World:
    """Everything outside the pure core that the use cases work with."""

    source: CheckpointSource
    curves: CurveReader
    queue: WatchedQueue
    history: RunHistory
    tracking: Tracking
    dispatcher: AlertDispatcher
    measurement: MeasurementPlan
    policy: Policy
    keeping: Keeping
    order: QueueOrder = QueueOrder()
    sweeps: SweepService | None = None
    """None: this process does not handle sweeps; their results are left for a watcher."""
    wake_workers: Callable[[], None] = lambda: None
    """Called when there may be work for the workers of this machine."""

    def publish_training(self, checkpoint: Checkpoint) -> None:
        """Store the curves up to a checkpoint, and queue them and the facts of its training for the tracking store."""
        keep_curves(checkpoint, self.curves, self.history)
        self.tracking.publish_curves(checkpoint, curves_at(checkpoint, self.history))
        self.tracking.publish_facts(checkpoint, self.curves.facts(checkpoint))  # the curves find the run

    def log_found(self, checkpoints: Iterable[Checkpoint], now: datetime) -> None:
        """Log what was found; after a restart these are all, and known."""
        self.history.log(found(checkpoint, now) for checkpoint in checkpoints)

    def close(self) -> None:
        """Release open resources; the alert channels get a moment to send what is due."""
        self.source.close()
        self.tracking.close()
        self.dispatcher.alerting.close()


@dataclass(kw_only=True)
class Reasks:
    """Evaluated checkpoints that wait to be asked again, and those that need not be."""

    taken_over: dict[str, EvalRecord] = field(default_factory=dict)
    """Records without an evaluation by plan id, not reviewed yet: the results were known."""
    checkpoints: dict[str, Checkpoint] = field(default_factory=dict)
    """By `uri`."""
    since: datetime | None = None
    """When they were announced; None: not yet."""

    def identities(self) -> frozenset[Identity]:
        """Return the checkpoints that wait to be asked again, of which the weights are kept."""
        return frozenset(map(identity_of, self.checkpoints.values()))


@dataclass(kw_only=True)
class Reported:
    """What lasts and is reported once."""

    gaps: set[Gap] = field(default_factory=set)
    """Those that are stored and alerted: a source returns all its gaps at every pass."""
    kinds: set[AlertKind] | None = None
    """Of alerts of the run itself that are firing; None: not read yet."""


@dataclass(kw_only=True)
class WatchState:
    """What this process has seen so far. A restart begins with an empty state and reaches the same results."""

    found: list[Checkpoint] = field(default_factory=list)
    """Not yet planned: kept when a pass fails, because a source returns each checkpoint once."""
    unreported: list[Checkpoint] = field(default_factory=list)
    """Found, but not in a `Tick` yet: kept when a pass fails, too."""
    opening: tuple[RunEvent, ...] = ()
    """For the log, before the first pass."""
    is_held: Callable[[Checkpoint], bool] = lambda _: False
    """Whether these wait, because evaluations would fail; called with the newest one."""
    demand_lead: Callable[[datetime], None] = lambda _: None
    """Raises an error unless this process leads the run; checkpoints are pinned all the same."""
    reasks: Reasks = field(default_factory=Reasks)
    """Evaluated checkpoints that lack results with the present settings, and are not asked yet."""
    first: dict[str, Checkpoint] = field(default_factory=dict)
    """First planned checkpoint of each run; a restarted source again returns the lowest step first."""
    schedules: dict[str, ScreeningSchedule] = field(default_factory=dict)
    """Screening schedule of each run; empty without screening."""
    reported: Reported = field(default_factory=Reported)
    """What was stored and alerted."""
    seen: set[tuple[str, int]] = field(default_factory=set)
    """Run and step of every checkpoint that was found or judged, or that is a gap."""
    aside: SetAside = field(default_factory=lambda: SetAside(log))
    """What fails because of a bug, which must not end the watching of a run that lasts days."""
    is_woken: bool = False
    """Whether a worker or the agent of this machine has written something since the last look at the store."""


@dataclass(frozen=True, kw_only=True)
class Tick:
    """What one pass found and concluded, for display."""

    checkpoints: tuple[Checkpoint, ...] = ()
    gaps: tuple[Gap, ...] = ()
    branches: tuple[Checkpoint, ...] = ()
    """Those of `checkpoints` with which training began again from an earlier step."""
    skipped: tuple[Gap, ...] = ()
    """Checkpoints that were not evaluated because too many newer ones were waiting."""
    reports: tuple[Report, ...] = ()
    changes: tuple[RunEvent, ...] = ()
    """Verdicts that became other ones because earlier checkpoints were evaluated."""
    calibrations: tuple[Calibration, ...] = ()
    turns: tuple[Turn, ...] = ()
    """Sweep runs that began, ended or were skipped."""
    swept: int = 0
    """Number of sweep results that were stored."""
    unsent: int = 0
    """Results that still wait for MLflow."""
    rejected: int = 0
    """Results that MLflow rejected; they do not wait."""
    set_aside: int = 0
    """What failed because of a bug or is damaged."""
    pending_alerts: int = 0
    """Alerts that still wait for a channel."""
