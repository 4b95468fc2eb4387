"""Detects stalls at every pass of the watcher: no checkpoint, or no evaluation, for too long.

Time is added up from pass to pass, and a pass counts for a minute at most: clock changes, a suspended machine and
database outages are not time in which the watcher observed that nothing happened.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from eval_jobs.identity import suite_fingerprint
from eval_jobs.queue_types import Hold, QueueState, Running
from eval_jobs.types import EvalPlan
from tracker.app.silent_runs import SilentRuns
from tracker.app.steps.alerting import AlertDispatcher
from tracker.app.world import Tick
from tracker.domain.alerts.stalls import PLANS, ends_of_unknown, idle_queue, over, slow_plan
from tracker.domain.records.alerts import Alert, AlertKind
from tracker.ports import CurveReader, TrainingHistory

LONGEST_PASS_S = 60.0
SLOWER = 5.0
"""Times the longest evaluation so far."""
LATE_CLOCK = timedelta(minutes=10)
"""How much a worker's clock may be behind: its claim counts as active for this long after its lease."""


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
        has_finished = any((passed.reports, passed.calibrations, passed.swept))
        has_progress = has_finished or not _is_left(state)
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


@dataclass(kw_only=True)
class StallMonitor:
    """What one watcher has seen, and which of its alerts are firing."""

    run: str
    dispatcher: AlertDispatcher
    runs: SilentRuns
    work: StuckWork
    holds: Callable[[], Iterable[Hold]]
    """Returns the claims of all runs: a worker that evaluates for another run is active."""
    looked_at: datetime | None = None
    lasting: dict[str, Alert] = field(default_factory=dict)
    """Firing alerts by fingerprint."""
    known: set[str] = field(default_factory=set)
    """Runs whose firing alerts were read: an earlier process may have raised them."""

    def look(self, passed: Tick, state: QueueState, now: datetime, *, is_training: bool) -> bool:
        """Record what one pass found, and queue alerts for stalls that begin or end; return whether there are any.

        Raises:
            StoreError: alerts cannot be read or stored; the next pass tries again.
        """
        gone_s = self._gone_s(now)
        self.runs.hear(passed, gone_s, now)
        self._recall(now)
        has_progress = self.work.look(passed, state, gone_s, is_worked_on=self._is_worked_on(state, now))
        found: list[Alert] = []
        if is_training:
            # Another process, which had watched for longer, may have raised it.
            found += (a for a in self._of(AlertKind.OVERDUE) if not self.runs.has_saved_since(a.run_id, a.raised_at))
            found += (alert for alert in self.runs.overdue(now) if not self._stands_still(alert.run_id))
        if self.dispatcher.patience.stuck_after_s:
            found += () if has_progress else self._of(AlertKind.STUCK)
            found += self.work.stuck(state, now)
        return self._dispatch(found, now, is_training=is_training)

    def _stands_still(self, run_id: str) -> bool:
        """Return whether the training is known to have crashed or to hang: one cause is one alert."""
        return any(
            alert.kind in (AlertKind.CRASH, AlertKind.HANG) for alert in self.dispatcher.alerts.open_alerts(run_id)
        )

    def _gone_s(self, now: datetime) -> float:
        """Return the watched time since the last pass, in seconds."""
        before, self.looked_at = self.looked_at or now, now
        return min(max(0.0, (now - before).total_seconds()), LONGEST_PASS_S)

    def _is_worked_on(self, state: QueueState, now: datetime) -> bool:
        if not (state.waiting or state.running):
            return True
        since = now - LATE_CLOCK
        # A worker that returned a plan with a note is active: the settings make it wait.
        # It checks every minute whether it may begin, so an old note is from a worker that is gone.
        for one in state.waiting:
            if one.note and one.noted_at is not None and one.noted_at > since:
                return True
        return any(hold.lease_until > since for hold in self.holds())

    def _of(self, kind: AlertKind) -> list[Alert]:
        return [alert for alert in self.lasting.values() if alert.kind is kind]

    def _dispatch(self, found: Iterable[Alert], now: datetime, *, is_training: bool) -> bool:
        present: dict[str, Alert] = {}
        for alert in found:
            present.setdefault(alert.fingerprint, alert)
        begun = [alert for key, alert in present.items() if key not in self.lasting]
        ended = [over(alert, now, is_training=is_training) for key, alert in self.lasting.items() if key not in present]
        self.dispatcher.dispatch([*begun, *ended])
        self.lasting = present
        return bool(begun or ended)

    def _recall(self, now: datetime) -> None:
        for run_id in {self.run, *self.runs.seen} - self.known:
            for alert in self.dispatcher.alerts.open_alerts(run_id):
                if alert.kind in (AlertKind.OVERDUE, AlertKind.STUCK):
                    self.lasting.setdefault(alert.fingerprint, alert)
            step = self.runs.seen[run_id].rhythm.step if run_id in self.runs.seen else 0
            ends = ends_of_unknown(run_id, step, now)
            # Without a reported begin, `publish` drops the end: no channel receives it.
            self.dispatcher.alerting.publish([end for end in ends if end.fingerprint not in self.lasting])
            self.known.add(run_id)


def stall_monitor(
    run: str,
    dispatcher: AlertDispatcher,
    curves: CurveReader,
    history: TrainingHistory,
    holds: Callable[[], Iterable[Hold]],
) -> StallMonitor:
    """Return a monitor that has seen nothing yet, with the limits of the settings."""

    def logged_at(run_id: str) -> datetime | None:
        of_run = (one.read_at for one in history.progress(run) if one.run_id in (run, run_id))
        return max(of_run, default=None)

    patience = dispatcher.patience
    runs = SilentRuns(curves=curves, logged_at=logged_at, factor=patience.overdue_factor)
    work = StuckWork(run=run, after_s=patience.stuck_after_s)
    return StallMonitor(run=run, dispatcher=dispatcher, runs=runs, work=work, holds=holds)


def _asked(plan: EvalPlan) -> str:
    """Return a key that is equal for plans with the same work: a screen has less than its rest or a full plan."""
    return f"{suite_fingerprint(plan.suite)} {plan.suite.part} {plan.calibration > 0} {bool(plan.loads)}"


def _is_left(state: QueueState) -> bool:
    """Return whether evaluations of a run itself are left; waiting sweeps raise no alert."""
    runs = any(one.plan.sweep is None for one in state.running)
    return runs or any(not one.is_sweep for one in state.waiting)
