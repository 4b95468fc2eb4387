"""What a watcher has seen of evaluations: which are running and for how long, and how long no worker was active."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from eval_jobs.identity import suite_fingerprint
from eval_jobs.queue_types import QueueState, Running
from eval_jobs.types import EvalPlan
from tracker.app.world import Tick
from tracker.domain.alerts.stalls import PLANS, idle_queue, slow_plan
from tracker.domain.records.alerts import Alert

SLOWER = 5.0
"""Times the longest evaluation so far."""


@dataclass(kw_only=True)
class SeenPlan:
    """A running evaluation, as seen by this watcher."""

    asked: str
    """Key that is equal for evaluations with the same work, which take similar time."""
    since: datetime
    seen_s: float = 0.0


@dataclass(kw_only=True)
class StuckWork:
    """Finds pending evaluations without an active worker, and those that take too long."""

    run: str
    after_s: float
    """Seconds without an active worker, or of one evaluation, before an alert is possible."""
    idle_s: float = 0.0
    """Seconds in which evaluations were pending without an active worker."""
    plans: dict[str, SeenPlan] = field(default_factory=dict)
    """Evaluations by plan id, from the claim until the report."""
    longest_s: dict[str, list[float]] = field(default_factory=dict)
    """Durations of finished evaluations by `SeenPlan.asked`: the longest ones, ascending, at most `PLANS`."""

    def look(self, passed: Tick, state: QueueState, gone_s: float, *, is_worked_on: bool) -> bool:
        """Record what one pass found; return whether an evaluation was finished, or none is left.

        `is_worked_on`: a worker holds a plan, or waits as the settings require; `gone_s`: since the previous pass.
        """
        for one in state.running:
            # The duration of a sweep's evaluation has no limit: its loads run as long as they are configured.
            if one.plan.sweep is None:
                self._count(one, gone_s)
        for calibration in passed.calibrations:
            self.plans.pop(calibration.plan.id, None)
        for report in passed.reports:
            self._finish(report.plan_id, gone_s)
        has_progress = passed.has_finished or not _is_left(state)
        self.idle_s = 0.0 if has_progress or is_worked_on else self.idle_s + gone_s
        return has_progress

    def stuck(self, state: QueueState, now: datetime) -> Iterator[Alert]:
        """Yield an alert if no worker is active, and one for each evaluation that takes too long."""
        if self.idle_s > self.after_s:
            yield idle_queue(state, self.run, self.idle_s, now)
        for one in state.running:
            plan = self.plans.get(one.plan.id)
            longest_s = [] if plan is None else self.longest_s.get(plan.asked, [])
            if plan is None or len(longest_s) < PLANS:
                continue
            if plan.seen_s > max(self.after_s, SLOWER * longest_s[-1]):
                yield slow_plan(one, self.run, for_s=plan.seen_s, longest_s=longest_s[-1], now=now)

    def _count(self, one: Running, gone_s: float) -> None:
        plan = self.plans.get(one.plan.id)
        if plan is None or plan.since != one.since:
            self.plans[one.plan.id] = SeenPlan(asked=_asked(one.plan), since=one.since)
        else:
            plan.seen_s += gone_s

    def _finish(self, plan_id: str, gone_s: float) -> None:
        done = self.plans.pop(plan_id, None)
        if done is not None:
            known = self.longest_s.get(done.asked, ())
            self.longest_s[done.asked] = sorted([*known, done.seen_s + gone_s])[-PLANS:]


def _asked(plan: EvalPlan) -> str:
    """Return a key that is equal for plans with the same work: a screen has less than its rest or a full plan."""
    return f"{suite_fingerprint(plan.suite)} {plan.suite.part} {plan.calibration > 0} {bool(plan.loads)}"


def _is_left(state: QueueState) -> bool:
    """Return whether evaluations of a run itself are left; waiting sweeps raise no alert."""
    runs = any(one.plan.sweep is None for one in state.running)
    return runs or any(not one.is_sweep for one in state.waiting)
