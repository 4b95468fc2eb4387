"""What the logs of a training show -> alerts and curves: the watcher's side of training health.

training = TrainingMonitor(run="run", history=history, tracking=tracking, dispatcher=dispatcher)
training.look(state.newest, now)    # at every pass; it may be killed at any line and run again
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

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
from tracker.domain.health.stored import RunProgress
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
    _changes: dict[str, int] = field(default_factory=dict)
    """By run id: those that were looked at."""
    _waiting: set[str] = field(default_factory=set)
    """Runs with an incident that is reported after a while, if it lasts."""
    _positions: dict[str, int] = field(default_factory=dict)
    """By run id: the points that were queued."""
    _points_at: datetime | None = None

    def look(self, now: datetime, *, has_ended: bool = False) -> None:
        """Report what is new; once the training `has_ended`, nothing waits for steps that might follow.

        Raises:
            StoreError: it cannot be read or stored; the next call tries again.
        """
        progress = self.history.progress(self.run)
        for run in progress:
            if run.changes != self._changes.get(run.run_id) or run.run_id in self._waiting:
                self._report(run, now, has_ended=has_ended)
        if self._points_at is None or not now - POINTS_S <= self._points_at <= now:
            self._queue_points(progress, now)
            self._points_at = now

    def _report(self, run: RunProgress, now: datetime, *, has_ended: bool) -> None:
        incidents = [one for one in self.history.training_incidents(run.run_id) if one.run_id == run.run_id]
        due = due_at(incidents, now, has_ended=has_ended)
        self._dispatch(run.run_id, incidents, due, now)
        if texts := incident_texts(incidents):
            self.tracking.publish_incidents(run.run_id, texts, now)
        if any(waits_at(incident, now) for incident in incidents):
            self._waiting.add(run.run_id)
        else:
            self._waiting.discard(run.run_id)
        self._changes[run.run_id] = run.changes

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

    def _queue_points(self, progress: tuple[RunProgress, ...], now: datetime) -> None:
        for run in progress:
            position, points = self.history.logged_points(run.run_id, after=self._positions.get(run.run_id, 0))
            if points:
                self.tracking.publish_live_curves(run.run_id, points, now)
            self._positions[run.run_id] = position
