"""Looks out for what nobody reports, once a pass of the watcher: no checkpoint, and no evaluation, for too long.

Time is added up from pass to pass, and a pass counts for a minute at most: a clock that is set, a machine that slept or
a database that was away is no time in which somebody looked and saw nothing.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from eval_jobs.queue_types import Hold, QueueState
from tracker.app.silent_runs import SilentRuns
from tracker.app.steps.alerting import AlertDispatcher
from tracker.app.stuck_work import StuckWork
from tracker.app.world import Tick
from tracker.domain.alerts.stalls import ends_of_unknown, over
from tracker.domain.records.alerts import Alert, AlertKind
from tracker.ports import CurveReader

LONGEST_PASS_S = 60.0
LATE_CLOCK = timedelta(minutes=10)
"""A worker's clock may be so much behind: its hold is believed for as long after its end."""


@dataclass(kw_only=True)
class StallMonitor:
    """What one watcher has seen, and which of its alerts last."""

    run: str
    dispatcher: AlertDispatcher
    runs: SilentRuns
    work: StuckWork
    holds: Callable[[], Iterable[Hold]]
    """Who works on what, of all runs: a worker that evaluates for another run is not missing."""
    looked_at: datetime | None = None
    lasting: dict[str, Alert] = field(default_factory=dict)
    """By fingerprint."""
    known: set[str] = field(default_factory=set)
    """Runs whose lasting alerts were read: an earlier process may have raised them."""

    def look(self, passed: Tick, state: QueueState, now: datetime, *, is_training: bool) -> None:
        """Take in what one pass found, and notify people of what lasts too long or is over.

        Raises:
            StoreError: nobody can be notified; the next pass tries again.
        """
        gone_s = self._gone_s(now)
        self.runs.hear(passed, gone_s, now)
        self._recall(now)
        has_progress = self.work.look(passed, state, gone_s, is_worked_on=self._is_worked_on(state, now))
        found: list[Alert] = []
        if is_training:
            # Whoever reported it may have been another process, which had watched for longer.
            found += (a for a in self._of(AlertKind.OVERDUE) if not self.runs.has_saved_since(a.run_id, a.raised_at))
            found += self.runs.overdue(now)
        if self.dispatcher.patience.stuck_after_s:
            found += () if has_progress else self._of(AlertKind.STUCK)
            found += self.work.stuck(state, now)
        self._dispatch(found, now, is_training=is_training)

    # --- private

    def _gone_s(self, now: datetime) -> float:
        """Return for how long somebody has looked since the last pass."""
        before, self.looked_at = self.looked_at or now, now
        return min(max(0.0, (now - before).total_seconds()), LONGEST_PASS_S)

    def _is_worked_on(self, state: QueueState, now: datetime) -> bool:
        if not (state.waiting or state.running):
            return True
        since = now - LATE_CLOCK
        # A worker that gave a plan back to wait, and said why, is at work: it keeps to the settings.
        # It looks every minute whether it may begin: a note that nobody renews is of one that is gone.
        for one in state.waiting:
            if one.note and one.noted_at is not None and one.noted_at > since:
                return True
        return any(hold.lease_until > since for hold in self.holds())

    def _of(self, kind: AlertKind) -> list[Alert]:
        return [alert for alert in self.lasting.values() if alert.kind is kind]

    def _dispatch(self, found: Iterable[Alert], now: datetime, *, is_training: bool) -> None:
        present: dict[str, Alert] = {}
        for alert in found:
            present.setdefault(alert.fingerprint, alert)
        begun = [alert for key, alert in present.items() if key not in self.lasting]
        ended = [over(alert, now, is_training=is_training) for key, alert in self.lasting.items() if key not in present]
        self.dispatcher.dispatch([*begun, *ended])
        self.lasting = present

    def _recall(self, now: datetime) -> None:
        for run_id in {self.run, *self.runs.seen} - self.known:
            for alert in self.dispatcher.alerts.open_alerts(run_id):
                if alert.kind in (AlertKind.OVERDUE, AlertKind.STUCK):
                    self.lasting.setdefault(alert.fingerprint, alert)
            step = self.runs.seen[run_id].rhythm.step if run_id in self.runs.seen else 0
            ends = ends_of_unknown(run_id, step, now)
            # Where nothing of it was reported, the end is no news, and nobody hears it.
            self.dispatcher.alerting.publish([end for end in ends if end.fingerprint not in self.lasting])
            self.known.add(run_id)


def stall_monitor(
    run: str, dispatcher: AlertDispatcher, curves: CurveReader, holds: Callable[[], Iterable[Hold]]
) -> StallMonitor:
    """Return a monitor that has seen nothing yet, as patient as the settings say."""
    patience = dispatcher.patience
    runs = SilentRuns(curves=curves, factor=patience.overdue_factor)
    work = StuckWork(run=run, after_s=patience.stuck_after_s)
    return StallMonitor(run=run, dispatcher=dispatcher, runs=runs, work=work, holds=holds)
