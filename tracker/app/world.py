"""What the use cases work with: settings, the world outside the pure core, and what a watcher has seen and found."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from eval_jobs.queue_types import Backlog
from eval_jobs.types import Checkpoint, ProbeLoad, ServeSpec, Suite
from tracker.app.steps.alerting import AlertDispatcher
from tracker.app.steps.collect import Keeping
from tracker.app.steps.error_boundary import ErrorBoundary
from tracker.app.steps.screening import ScreeningSchedule
from tracker.app.steps.sweeps import SweepService
from tracker.domain.records.calibration import Calibration
from tracker.domain.records.types import Gap, Policy, Report
from tracker.domain.sweeps.types import Turn
from tracker.domain.verdicts.screening import Screening
from tracker.ports import CheckpointSource, CurveReader, RunHistory, Tracking, WatchedQueue


@dataclass(frozen=True, kw_only=True)
class MeasurementPlan:
    """What is measured at every checkpoint, and how it is served."""

    suites: tuple[Suite, ...]
    serve: ServeSpec
    loads: tuple[ProbeLoad, ...]
    reference: Checkpoint | Literal["first"] | None = None
    """What latency is compared with; `first`: the first checkpoint of each run."""
    screening: Screening | None = None
    """None: every checkpoint is asked everything."""


@dataclass(frozen=True, kw_only=True)
class QueueOrder:
    """Which of a run's waiting checkpoints is next, and how many may wait."""

    backlog: Backlog = Backlog.NEWEST
    max_waiting: int = 20
    """Checkpoints; beyond it the oldest are skipped, where the backlog allows it."""


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
    """None: whoever is here does not take care of sweeps; what they ask stays for a watcher."""
    wake_workers: Callable[[], None] = lambda: None
    """Called when there may be something to do for those of this machine."""

    def close(self) -> None:
        """Release what is open; channels have a moment to take what is due."""
        self.source.close()
        self.tracking.close()
        self.dispatcher.alerting.close()


@dataclass(kw_only=True)
class WatchState:
    """What this process has seen so far. The next start begins with an empty one, and comes to the same results."""

    found: list[Checkpoint] = field(default_factory=list)
    """Not yet planned: kept over a pass that failed, because a source tells each checkpoint once."""
    first: dict[str, Checkpoint] = field(default_factory=dict)
    """The first checkpoint of each run that was planned; a restarted source tells the lowest step first again."""
    schedules: dict[str, ScreeningSchedule] = field(default_factory=dict)
    """How far each run is, where a part is asked first."""
    notified: set[Gap] = field(default_factory=set)
    """Gaps that are in the history and in the alerts: a source names its gaps at every pass."""
    boundary: ErrorBoundary = field(default_factory=ErrorBoundary)


@dataclass(frozen=True, kw_only=True)
class Tick:
    """What one pass found and concluded, for display."""

    checkpoints: tuple[Checkpoint, ...]
    gaps: tuple[Gap, ...]
    skipped: tuple[Gap, ...]
    """Checkpoints that were not evaluated because too many newer ones were waiting."""
    reports: tuple[Report, ...]
    calibrations: tuple[Calibration, ...] = ()
    turns: tuple[Turn, ...] = ()
    """Turns of sweeps that began, ended or were skipped."""
    swept: int = 0
    """Evaluations of sweeps that were taken over."""
    unsent: int
    """Results that still wait for MLflow."""
    pending_alerts: int = 0
    """Alerts that still wait for a channel."""

    @property
    def has_finished(self) -> bool:
        """Whether it took over an evaluation."""
        return bool(self.reports or self.calibrations or self.swept)
