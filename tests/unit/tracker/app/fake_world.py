"""A world made of fakes, for tests of the use cases."""

from dataclasses import dataclass, field
from pathlib import Path

from eval_jobs.queue.rules import lease_end
from eval_jobs.queue_types import Backlog
from eval_jobs.types import EvalRecord
from tests.fakes.alerting import FakeAlerting
from tests.fakes.clock import FakeClock
from tests.fakes.curves import FakeCurves
from tests.fakes.history import FakeHistory
from tests.fakes.queue import FakeQueue
from tests.fakes.source import FakeSource
from tests.fakes.tracking import FakeTracking
from tests.records import RecordedRun, forgetting_run
from tracker.adapters.checkpoints.pins.store import FolderOfPins
from tracker.app.steps.alerting import AlertDispatcher
from tracker.app.steps.collect import Keeping
from tracker.app.tick import tick
from tracker.app.world import MeasurementPlan, QueueOrder, Tick, WatchState, World
from tracker.domain.best.retention import KeepPolicy
from tracker.domain.records.policy import Policy

NOWHERE = Path("/nowhere/pins")
"""The checkpoints of a recorded run were never on a disk."""


@dataclass(kw_only=True)
class FakeWorld:
    """All fakes by name, and the world that holds them."""

    run: RecordedRun = field(default_factory=lambda: forgetting_run(trouble=False))
    source: FakeSource = field(default_factory=FakeSource)
    queue: FakeQueue = field(default_factory=FakeQueue)
    history: FakeHistory = field(default_factory=FakeHistory)
    tracking: FakeTracking = field(default_factory=FakeTracking)
    alerting: FakeAlerting = field(default_factory=FakeAlerting)
    clock: FakeClock = field(default_factory=FakeClock)
    order: QueueOrder = field(default_factory=lambda: QueueOrder(backlog=Backlog.OLDEST))

    def world(self) -> World:
        plan = self.run.records[0].plan
        return World(
            source=self.source,
            curves=FakeCurves(self.run.curves),
            queue=self.queue,
            history=self.history,
            tracking=self.tracking,
            dispatcher=AlertDispatcher(alerts=self.history, records=self.history, alerting=self.alerting),
            measurement=MeasurementPlan(suites=(plan.suite,), serve=plan.serve, loads=plan.loads),
            policy=Policy(phases=self.run.phases),
            order=self.order,
            keeping=Keeping(
                run=self.run.run_id,
                pins=FolderOfPins(NOWHERE),
                queue=self.queue,
                records=self.history,
                texts=self.history,
                gaps=self.history,
                policy=KeepPolicy(pins=1, samples=2),
            ),
        )

    def tick(self, state: WatchState | None = None) -> Tick:
        """Do one pass; without `state` it is the first one of a process."""
        return tick(self.world(), state or WatchState(), self.clock.now())

    def work(self, at_most: int = 1000) -> int:
        """Do what a worker would: hand in the recorded results of waiting plans; return how many."""
        by_id = {record.plan.id: record for record in self.run.records}
        done = 0
        now = self.clock.now()
        while done < at_most and (claim := self.queue.claim(worker="w", now=now, lease_until=lease_end(now))):
            record: EvalRecord = by_id[claim.plan.id]
            self.queue.finish(claim, record, now=now)
            done += 1
        return done
