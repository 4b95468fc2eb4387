"""What a watcher has seen of evaluations: which run and for how long, and for how long nobody was at work."""

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
    """An evaluation, as far as it was seen."""

    asked: str
    """What is equal for those that ask the same, and so take as long."""
    since: datetime
    seen_s: float = 0.0


@dataclass(kw_only=True)
class StuckWork:
    """Finds evaluations that nobody works on, and those that take too long."""

    run: str
    after_s: float
    """For how long nobody need be at work."""
    idle_s: float = 0.0
    """How long evaluations were left with nobody at work."""
    plans: dict[str, SeenPlan] = field(default_factory=dict)
    """What runs, or ran until it is reported."""
    longest_s: dict[str, list[float]] = field(default_factory=dict)
    """Of evaluations that were finished, by what they asked: the longest ones, `PLANS` at most."""

    def look(self, passed: Tick, state: QueueState, gone_s: float, *, is_worked_on: bool) -> bool:
        """Take in what one pass found; return whether an evaluation was finished, or none is left.

        `is_worked_on`: somebody holds a plan, or waits because the settings say so; `gone_s`: since the pass before.
        """
        for one in state.running:
            # Of a sweep nobody knows how long one of its evaluations may take: loads are as long as they are written.
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
        """Yield an alert of evaluations that nobody works on, and of each that takes too long."""
        if self.idle_s > self.after_s:
            yield idle_queue(state, self.run, self.idle_s, now)
        for one in state.running:
            plan = self.plans.get(one.plan.id)
            longest_s = [] if plan is None else self.longest_s.get(plan.asked, [])
            if plan is None or len(longest_s) < PLANS:
                continue
            if plan.seen_s > max(self.after_s, SLOWER * longest_s[-1]):
                yield slow_plan(one, self.run, for_s=plan.seen_s, longest_s=longest_s[-1], now=now)

    # --- private

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


# --- private


def _asked(plan: EvalPlan) -> str:
    """Return what is equal for plans that ask the same: a screen asks less than its rest, and less than the whole."""
    return f"{suite_fingerprint(plan.suite)} {plan.suite.part} {plan.calibration > 0} {bool(plan.loads)}"


def _is_left(state: QueueState) -> bool:
    """Return whether something of a run itself is to be evaluated; nobody is called for a sweep that waits."""
    runs = any(one.plan.sweep is None for one in state.running)
    return runs or any(not one.is_sweep for one in state.waiting)
