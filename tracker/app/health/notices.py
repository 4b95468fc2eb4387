"""What the logs of a training show -> alerts and curves: the watcher's side of training health.

training = TrainingMonitor(run="run", history=history, tracking=tracking, dispatcher=dispatcher, standing=standing)
training.note(news.take(now))
training.look(now)    # it may be killed at any line and run again
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from eval_jobs.records.changes import Change, ChangeKind
from tracker.app.steps.alerting import AlertDispatcher
from tracker.domain.alerts.training import (
    RunStanding,
    alert_fingerprint,
    alert_of_incident,
    due_at,
    incident_texts,
    states_to_report,
    waits_at,
)
from tracker.domain.records.alerts import AlertState
from tracker.domain.records.training import TrainingIncident
from tracker.ports import Tracking, TrainingHistory

POINTS_S = timedelta(seconds=5)
"""Points are queued at this interval, so that many become one request to MLflow."""


@dataclass(kw_only=True)
class TrainingMonitor:
    """Reports what the agent has read, once."""

    run: str
    history: TrainingHistory
    tracking: Tracking
    dispatcher: AlertDispatcher
    standing: Callable[[str], RunStanding]
    """Returns where a run stands."""
    _has_begun: bool = False
    """Whether the runs that earlier processes followed are known."""
    _waiting: set[str] = field(default_factory=set)
    """Runs with an incident that is new, or that is reported after a while, if it lasts."""
    _points: set[str] = field(default_factory=set)
    """Runs with points that were not queued."""
    _positions: dict[str, int] = field(default_factory=dict)
    """By run id: the points that were queued."""
    _points_at: datetime | None = None

    @property
    def is_waiting(self) -> bool:
        """Return whether something is reported later although nothing else changes."""
        return bool(self._waiting or self._points)

    def note(self, changes: Iterable[Change]) -> None:
        """Note what changed in the run."""
        for change in changes:
            if change.kind is ChangeKind.TRAINING:
                self._waiting.add(change.run_id)
            elif change.kind is ChangeKind.CURVES:
                self._points.add(change.run_id)

    def look(self, now: datetime, *, has_ended: bool = False) -> bool:
        """Queue what is new, and return whether anything was; after the training `has_ended`, no steps may follow.

        Raises:
            StoreError: it cannot be read or stored; the next call tries again.
        """
        if not self._has_begun:
            runs = {one.run_id for one in self.history.progress(self.run)}
            self._waiting |= runs
            self._points |= runs
            self._has_begun = True  # last: if reading fails, the next look begins again
        waiting = sorted(self._waiting)
        for run_id in waiting:
            self._report(run_id, now, has_ended=has_ended)
        is_due = self._points_at is None or not now - POINTS_S <= self._points_at <= now
        if not self._points or not (is_due or has_ended):
            return bool(waiting)
        self._queue_points(now)
        self._points_at = now
        return True

    def _report(self, run_id: str, now: datetime, *, has_ended: bool) -> None:
        incidents = [one for one in self.history.training_incidents(run_id) if one.run_id == run_id]
        due = due_at(incidents, now, has_ended=has_ended)
        self._dispatch(run_id, incidents, due, now)
        if texts := incident_texts(incidents):
            self.tracking.publish_incidents(run_id, texts, now)
        if not any(waits_at(incident, now) for incident in incidents):
            self._waiting.discard(run_id)

    def _dispatch(
        self, run_id: str, incidents: Sequence[TrainingIncident], due: Collection[str], now: datetime
    ) -> None:
        known = {alert.fingerprint: alert.state for alert in self.dispatcher.alerts.alerts(run_id)}
        standing, lines = self.standing(run_id), self.dispatcher.log_lines
        for incident in incidents:
            state = known.get(alert_fingerprint(incident))
            for news in states_to_report(incident, state, now, is_due=incident.id in due):
                shown = replace(incident, ended_by=None) if news is AlertState.FIRING else incident
                self.dispatcher.dispatch([alert_of_incident(shown, standing, now, lines=lines)])

    def _queue_points(self, now: datetime) -> None:
        for run_id in sorted(self._points):
            position, points = self.history.logged_points(run_id, after=self._positions.get(run_id, 0))
            if points:
                self.tracking.publish_live_curves(run_id, points, now)
            self._positions[run_id] = position
            self._points.discard(run_id)
