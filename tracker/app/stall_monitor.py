"""Looks out for what nobody tells, once a pass of the watcher: no checkpoint, and no evaluation, for too long.

Time is added up from pass to pass, and a pass counts for a minute at most: a clock that is set, a machine that slept or
a database that was away is no time in which somebody looked and saw nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import chain

from eval_jobs.identity import suite_fingerprint
from eval_jobs.queue_types import Hold, QueueState
from eval_jobs.types import Checkpoint, EvalPlan
from tracker.app.steps.alerting import AlertDispatcher
from tracker.app.world import Tick
from tracker.domain.alerts.stalls import KEPT, PLANS, Rhythm, ends_of_unknown, idle_queue, over, overdue, slow_plan
from tracker.domain.records.alerts import Alert, AlertKind
from tracker.ports import CurveReader

SLOWER = 5.0
"""Times the longest evaluation so far."""
LONGEST_PASS_S = 60.0
LATE_CLOCK = timedelta(minutes=10)
"""A worker's clock may be so much behind: its hold is believed for as long after its end."""


@dataclass(kw_only=True)
class Work:
    """An evaluation, as far as it was seen."""

    asked: str
    """What is equal for those that ask the same, and so take as long."""
    since: datetime
    seen_s: float = 0.0


@dataclass(kw_only=True)
class RunsSeen:
    """What was seen of each run, by its name."""

    rhythms: dict[str, Rhythm] = field(default_factory=dict)
    newest: dict[str, Checkpoint] = field(default_factory=dict)
    ends_at: dict[str, int | None] = field(default_factory=dict)
    """At which step the training ends, by the word of its newest checkpoint, once that was asked for; None: no word."""
    quiet_s: dict[str, float] = field(default_factory=dict)
    """Since a checkpoint of the run was heard of."""
    logged_at: dict[str, datetime | None] = field(default_factory=dict)
    """When the trainer last wrote a log, of runs that are waited for."""
    silent_s: dict[str, float] = field(default_factory=dict)
    """Since it was seen to write one."""
    old: set[str] = field(default_factory=set)
    """Runs that had been silent for too long when their newest checkpoint was found: nobody knows who trains them."""


@dataclass(kw_only=True)
class StallMonitor:
    """What one watcher has seen, and which of its alerts last."""

    run: str
    dispatcher: AlertDispatcher
    curves: CurveReader
    holds: Callable[[], Iterable[Hold]]
    """Who works on what, of all runs: whoever evaluates for another one is no worker that is missing."""
    looked_at: datetime | None = None
    runs: RunsSeen = field(default_factory=RunsSeen)
    idle_s: float = 0.0
    """How long evaluations were left with nobody at work."""
    works: dict[str, Work] = field(default_factory=dict)
    """By plan: what runs, or ran until it is reported."""
    durations_s: dict[str, list[float]] = field(default_factory=dict)
    """Of evaluations that were finished, by what they asked: the longest ones, `PLANS` at most."""
    lasting: dict[str, Alert] = field(default_factory=dict)
    """By fingerprint."""
    known: set[str] = field(default_factory=set)
    """Runs whose lasting alerts were read: an earlier process may have raised them."""

    def look(self, passed: Tick, state: QueueState, now: datetime, *, is_training: bool) -> None:
        """Take in what one pass found, and tell people what lasts too long or is over.

        Raises:
            StoreError: nobody can be told; the next pass tries again.
        """
        gone_s = 0.0 if self.looked_at is None else (now - self.looked_at).total_seconds()
        gone_s, self.looked_at = min(max(0.0, gone_s), LONGEST_PASS_S), now
        self._hear(passed, gone_s, now)
        self._recall(now)
        self._listen(gone_s)
        has_progress = self._count(passed, state, gone_s)
        self._find_idle(state, gone_s, now)
        if has_progress:
            self.idle_s = 0.0
        overdue_now = self._overdue(now) if is_training else iter(())
        stuck_now = self._stuck(state, now, has_progress=has_progress)
        self._say(chain(overdue_now, stuck_now), now, is_training=is_training)

    # --- private

    def _hear(self, passed: Tick, gone_s: float, now: datetime) -> None:
        for checkpoint in passed.checkpoints:
            self.runs.newest[checkpoint.run_id] = checkpoint
            self.runs.ends_at.pop(checkpoint.run_id, None)
        signs = [(c.ready_at, c.run_id, c.step) for c in passed.checkpoints]
        signs += [(gap.seen_at, gap.run_id, gap.step) for gap in passed.gaps]
        for at, run_id, step in sorted(signs):
            before = self.runs.rhythms.get(run_id) or Rhythm(run_id=run_id, step=step, times=())
            # A training that goes on after a long time is a new one: the time in between is no interval of it.
            known = () if run_id in self.runs.old and at > before.times[-1] else before.times
            times = tuple(sorted({*known, at}))[-KEPT - 1 :]
            self.runs.rhythms[run_id] = replace(before, step=step, times=times, stride=max(0, step - before.step))
        self.runs.quiet_s = {run_id: seconds + gone_s for run_id, seconds in self.runs.quiet_s.items()}
        for run_id in {run_id for _, run_id, _ in signs}:
            self.runs.quiet_s[run_id] = 0.0
            limit_s = self.runs.rhythms[run_id].limit_s(self.dispatcher.patience.overdue_factor)
            is_old = limit_s is not None and (now - self.runs.rhythms[run_id].times[-1]).total_seconds() > limit_s
            self.runs.old = self.runs.old | {run_id} if is_old else self.runs.old - {run_id}

    def _listen(self, gone_s: float) -> None:
        """Notice that a trainer logs while no checkpoint comes. Its clock may be another one: only a change counts."""
        for run_id, quiet_s in self.runs.quiet_s.items():
            limit_s = self.runs.rhythms[run_id].limit_s(self.dispatcher.patience.overdue_factor)
            if limit_s is None or quiet_s <= limit_s / 2 or run_id not in self.runs.newest:
                self.runs.logged_at.pop(run_id, None)
                self.runs.silent_s[run_id] = quiet_s
                continue
            at = self.curves.logged_at(self.runs.newest[run_id])
            has_logged = run_id in self.runs.logged_at and at != self.runs.logged_at[run_id]
            self.runs.silent_s[run_id] = 0.0 if has_logged else self.runs.silent_s[run_id] + gone_s
            self.runs.logged_at[run_id] = at

    def _count(self, passed: Tick, state: QueueState, gone_s: float) -> bool:
        """Take note of what is worked on; return whether an evaluation was finished, or none is left."""
        for one in state.running:
            # Of a sweep nobody knows how long one of its evaluations may take: loads are as long as they are written.
            if one.plan.sweep is None:
                before = self.works.get(one.plan.id)
                if before is None or before.since != one.since:
                    self.works[one.plan.id] = Work(asked=_asked(one.plan), since=one.since)
                else:
                    before.seen_s += gone_s
        for calibration in passed.calibrations:
            self.works.pop(calibration.plan.id, None)
        for report in passed.reports:
            if (done := self.works.pop(report.plan_id, None)) is not None:
                longest = sorted([*self.durations_s.get(done.asked, ()), done.seen_s + gone_s])
                self.durations_s[done.asked] = longest[-PLANS:]
        return bool(passed.reports or passed.calibrations or passed.swept) or not _is_left(state)

    def _find_idle(self, state: QueueState, gone_s: float, now: datetime) -> None:
        is_left = _is_left(state)
        # A worker that gave a plan back to wait, and said why, is at work: it keeps to the settings.
        # It looks every minute whether it may begin: a note that nobody renews is of one that is gone.
        waits = any(w.note and w.noted_at is not None and w.noted_at > now - LATE_CLOCK for w in state.waiting)
        is_idle = is_left and not waits and not any(hold.lease_until > now - LATE_CLOCK for hold in self.holds())
        self.idle_s = self.idle_s + gone_s if is_idle else 0.0

    def _overdue(self, now: datetime) -> Iterator[Alert]:
        runs = self.runs
        for alert in self._lasting(AlertKind.OVERDUE):
            rhythm = runs.rhythms.get(alert.run_id)
            if rhythm is None or rhythm.times[-1] <= alert.raised_at:
                yield alert  # whoever told it may have been another process, which had watched for longer
        factor = self.dispatcher.patience.overdue_factor
        found = {
            run: overdue(r, factor, quiet_s=runs.quiet_s[run], silent_s=runs.silent_s[run], now=now)
            for run, r in runs.rhythms.items()
        }
        late = {run_id: alert for run_id, alert in found.items() if alert is not None}
        # Without the trainer's word only the run that wrote last is waited for, and while no other one may yet write.
        silent = [
            run_id for run_id in runs.rhythms if late and self._ends_at(run_id) is None and run_id not in runs.old
        ]
        may_write = [r for r in silent if r not in late and runs.rhythms[r].limit_s(factor) is not None]
        last = max(silent, key=lambda run_id: runs.rhythms[run_id].times[-1], default=None)
        for run_id, alert in late.items():
            step = self._ends_at(run_id)
            is_due = run_id == last and not may_write if step is None else runs.rhythms[run_id].has_next_before(step)
            if is_due:
                yield alert

    def _ends_at(self, run_id: str) -> int | None:
        if run_id in self.runs.newest and run_id not in self.runs.ends_at:
            self.runs.ends_at[run_id] = self.curves.last_step(self.runs.newest[run_id])
        return self.runs.ends_at.get(run_id)

    def _stuck(self, state: QueueState, now: datetime, *, has_progress: bool) -> Iterator[Alert]:
        after_s = self.dispatcher.patience.stuck_after_s
        if not after_s:
            return
        if not has_progress:
            yield from self._lasting(AlertKind.STUCK)
        if self.idle_s > after_s:
            yield idle_queue(state, self.run, self.idle_s, now)
        for one in state.running:
            work = self.works.get(one.plan.id)
            longest = self.durations_s.get(work.asked, []) if work is not None else []
            if work is not None and len(longest) == PLANS and work.seen_s > max(after_s, SLOWER * longest[-1]):
                yield slow_plan(one, self.run, for_s=work.seen_s, longest_s=longest[-1], now=now)

    def _lasting(self, kind: AlertKind) -> tuple[Alert, ...]:
        return tuple(alert for alert in self.lasting.values() if alert.kind is kind)

    def _say(self, found: Iterable[Alert], now: datetime, *, is_training: bool) -> None:
        present: dict[str, Alert] = {}
        for alert in found:
            present.setdefault(alert.fingerprint, alert)
        begun = [alert for key, alert in present.items() if key not in self.lasting]
        ended = [over(alert, now, is_training=is_training) for key, alert in self.lasting.items() if key not in present]
        self.dispatcher.dispatch([*begun, *ended])
        self.lasting = present

    def _recall(self, now: datetime) -> None:
        for run_id in {self.run, *self.runs.rhythms} - self.known:
            for alert in self.dispatcher.alerts.open_alerts(run_id):
                if alert.kind in (AlertKind.OVERDUE, AlertKind.STUCK):
                    self.lasting.setdefault(alert.fingerprint, alert)
            step = self.runs.rhythms[run_id].step if run_id in self.runs.rhythms else 0
            ends = ends_of_unknown(run_id, step, now)
            # Where nothing of it was told, the end is no news, and nobody hears it.
            self.dispatcher.alerting.publish([end for end in ends if end.fingerprint not in self.lasting])
            self.known.add(run_id)


# --- private


def _asked(plan: EvalPlan) -> str:
    """Return what is equal for plans that ask the same: a screen asks less than its rest, and less than the whole."""
    return f"{suite_fingerprint(plan.suite)} {plan.suite.part} {plan.calibration > 0} {bool(plan.loads)}"


def _is_left(state: QueueState) -> bool:
    """Return whether something of a run itself is to be evaluated; nobody is called for a sweep that waits."""
    runs = any(one.plan.sweep is None for one in state.running)
    return runs or any(not one.is_sweep for one in state.waiting)
