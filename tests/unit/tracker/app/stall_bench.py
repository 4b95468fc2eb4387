"""A monitor over fakes, and what passes of a watcher find, for tests."""

import math
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from eval_jobs.queue_types import Hold, QueueState, Running, Waiting
from eval_jobs.records.progress import Progress, Stage
from eval_jobs.types import Checkpoint
from tests.fakes.alerting import FakeAlerting
from tests.fakes.curves import FakeCurves
from tests.fakes.history import FakeHistory
from tests.records import forgetting_run
from tracker.app.stall_monitor import stall_monitor
from tracker.app.steps.alerting import AlertDispatcher
from tracker.app.world import Tick
from tracker.domain.health.run_state import RunState
from tracker.domain.health.stored import ReadNow
from tracker.domain.records.alerts import AlertKind, AlertState, Patience
from tracker.domain.records.types import CurvePoint, Gap, Report

RECORDED = forgetting_run(checkpoints=3, samples=4, trouble=False)
RUN = RECORDED.run_id
FIRST = RECORDED.records[0].plan.checkpoint
PLAN = RECORDED.records[0].plan
START = FIRST.ready_at
EVERY_S = 600.0
IDLE = QueueState()
FIRING, RESOLVED = AlertState.FIRING, AlertState.RESOLVED


def checkpoint(number: int, *, run_id: str = RUN, every_s: float = EVERY_S) -> Checkpoint:
    at = START + timedelta(seconds=number * every_s)
    return replace(FIRST, run_id=run_id, step=number * 100, digest=f"{run_id} {number}", ready_at=at)


def seconds(count: float) -> datetime:
    return START + timedelta(seconds=count)


def passed(
    *checkpoints: Checkpoint, gaps: tuple[Gap, ...] = (), reports: tuple[Report, ...] = (), swept: int = 0
) -> Tick:
    return Tick(checkpoints=checkpoints, gaps=gaps, skipped=(), reports=reports, swept=swept, unsent=0)


def waiting(count: int, note: str = "") -> QueueState:
    first = Waiting(plan_id="p", run_id=RUN, step=300, note=note)
    return QueueState(waiting=(first,), unfinished={RUN: count})


def of_sweep(state: QueueState) -> QueueState:
    return replace(state, waiting=tuple(replace(one, is_sweep=True) for one in state.waiting))


def running(plan_id: str, since: datetime) -> QueueState:
    progress = Progress(stage=Stage.EVALUATING, benchmarks=("sums",), done=3, total=8)
    one = Running(plan=replace(PLAN, id=plan_id), worker="w1", progress=progress, since=since)
    return QueueState(running=(one,), unfinished={RUN: 1})


def report(plan_id: str) -> Report:
    return replace(RECORDED.reports[0], plan_id=plan_id)


@dataclass
class Tower:
    """A monitor over fakes."""

    patience: Patience = field(default_factory=Patience)
    last_step: int | None = None
    history: FakeHistory = field(default_factory=FakeHistory)
    alerting: FakeAlerting = field(default_factory=FakeAlerting)
    elsewhere: tuple[Hold, ...] = ()
    """What workers hold of other runs."""
    lease_s: float = 60.0
    pauses_until_s: float = math.inf
    """Until then a worker that waits looks again at every pass."""
    logs_until_s: float = 0.0
    """Until then the trainer logs."""

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """A process starts, perhaps after another one."""
        self.looked_s: float | None = None
        self.state, self.is_training = IDLE, True
        points = (CurvePoint(key="train/loss", step=0, value=1.0),)
        curves = FakeCurves(points, last_step=self.last_step)
        dispatcher = AlertDispatcher(
            alerts=self.history, records=self.history, alerting=self.alerting, patience=self.patience
        )
        self.monitor = stall_monitor(RUN, dispatcher, curves, self.history, self.holds)

    def holds(self) -> tuple[Hold, ...]:
        until = seconds((self.looked_s or 0) + self.lease_s)
        own = (Hold(plan_id=r.plan.id, worker=r.worker, attempt=1, lease_until=until) for r in self.state.running)
        return (*own, *self.elsewhere)

    def look(
        self, at_s: float, *checkpoints: Checkpoint, state: QueueState = IDLE, is_training: bool = True, **more: object
    ) -> None:
        """Look once a minute until then as it was before, and then at this."""
        while self.looked_s is not None and self.looked_s + 60 < at_s:
            self.jump(self.looked_s + 60, state=self.state, is_training=self.is_training)
        self.jump(at_s, *checkpoints, state=state, is_training=is_training, **more)

    def jump(
        self, at_s: float, *checkpoints: Checkpoint, state: QueueState = IDLE, is_training: bool = True, **more: object
    ) -> None:
        """Look once, whatever time has passed."""
        noted_at = seconds(min(at_s, self.pauses_until_s))
        state = replace(state, waiting=tuple(replace(one, noted_at=noted_at) for one in state.waiting))
        if at_s <= self.logs_until_s:
            self.history.save(
                ReadNow(read_at=seconds(at_s), runs={RUN: RunState()}, streams={}, incidents=(), points={})
            )
        self.looked_s, self.state, self.is_training = at_s, state, is_training
        self.monitor.look(passed(*checkpoints, **more), state, seconds(at_s), is_training=is_training)  # type: ignore[arg-type]

    def told(self) -> list[tuple[AlertKind | None, AlertState, int | None]]:
        return [(a.kind, a.state, a.step) for a in self.alerting.alerts]


def saved(tower: Tower, count: int) -> None:
    for number in range(count):
        tower.look(number * EVERY_S, checkpoint(number))
