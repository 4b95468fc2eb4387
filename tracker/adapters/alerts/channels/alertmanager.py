"""Prometheus Alertmanager: each alert becomes an Alertmanager alert, which users can route, silence and inhibit.

Labels are an alert's identity there, so none of them changes between firing and resolved. Alertmanager keeps an alert
until `endsAt`. That is 30 days ahead, so that the end of the tracker resolves no alert. A restarted Alertmanager has
lost all alerts, so firing ones are sent again every minute.
"""

from datetime import datetime, timedelta

import httpx

from tracker.adapters.alerts.sending.markdown import address
from tracker.adapters.alerts.sending.posting import JSON, json_bytes, post, unknown_answer
from tracker.adapters.alerts.sending.target import Channel
from tracker.domain.alerts.text import AlertLines, entry_of, line_of, run_and_step
from tracker.domain.records.alerts import Alert, AlertKind, AlertMessage, AlertState, alert_subject_text
from tracker.domain.records.display import one_line

LASTS = timedelta(days=30)
TEST_LASTS = timedelta(minutes=5)
"""No message resolves a test alert, so it expires."""
MAX_LABEL_CHARS = 200
PATH = "/api/v2/alerts"

_NAMES = {
    AlertKind.LOSS: ("CheckpointRegressed", "critical"),
    AlertKind.LATENCY: ("CheckpointSlower", "warning"),
    AlertKind.MISSING: ("EvaluationMissing", "warning"),
    AlertKind.CHECKPOINT: ("CheckpointNotEvaluated", "warning"),
    AlertKind.OVERDUE: ("CheckpointOverdue", "warning"),
    AlertKind.STUCK: ("EvaluationStuck", "critical"),
    AlertKind.UNFIT: ("BenchmarkUnfit", "warning"),
    AlertKind.UNSENT: ("ResultsRejected", "warning"),
    AlertKind.BUG: ("TrackerFailed", "warning"),
    AlertKind.CRASH: ("TrainingCrashed", "critical"),
    AlertKind.HANG: ("TrainingHangs", "critical"),
    AlertKind.DIVERGED: ("TrainingDiverged", "critical"),
    AlertKind.FAULT: ("TrainingFault", "warning"),
    AlertKind.ANOMALY: ("TrainingAnomaly", "warning"),
    AlertKind.TEST: ("CheckpointTrackerTest", "info"),
}


class Alertmanager(Channel):
    """`tracker.ports.Notifier` for an Alertmanager."""

    repeat_s = 60.0
    """Seconds after which firing alerts are sent again: a restarted Alertmanager has lost them."""

    def notify(self, message: AlertMessage) -> str:
        """Deliver the message; see the port."""
        target = self.target
        headers, auth = dict(JSON), None
        if target.user:
            auth = httpx.BasicAuth(target.user, target.secret)
        elif target.secret:
            headers["Authorization"] = f"Bearer {target.secret}"
        body = json_bytes(alerts_of(message, target.clock.now()))
        reply = post(target, body, url=f"{target.url.rstrip('/')}{PATH}", headers=headers, auth=auth)
        if reply.body.strip():
            raise unknown_answer(target, reply)
        return f"HTTP {reply.status}"


def alerts_of(message: AlertMessage, now: datetime) -> list[dict[str, object]]:
    """Return the alerts in Alertmanager's format; resolved ones end at `now`."""
    return [_alert(alert, message, now) for alert in message.alerts]


def _alert(alert: Alert, message: AlertMessage, now: datetime) -> dict[str, object]:
    name, severity = _NAMES[alert.kind]
    labels = {
        "alertname": name,
        "run": line_of(alert.run_id, MAX_LABEL_CHARS),
        "subject": line_of(alert_subject_text(alert.subject), MAX_LABEL_CHARS),
        "kind": alert.kind or "",
        "severity": severity,
        "fingerprint": line_of(alert.fingerprint, MAX_LABEL_CHARS),
    }
    link = address(one_line(message.link))
    value: dict[str, object] = {
        "labels": {key: text for key, text in labels.items() if text},
        "annotations": {key: text for key, text in _annotations(alert, entry_of(alert), link).items() if text},
    }
    if link:
        value["generatorURL"] = link
    if alert.state is AlertState.FIRING:
        lasts = TEST_LASTS if alert.kind is AlertKind.TEST else LASTS
        return value | {"startsAt": min(alert.raised_at, now).isoformat(), "endsAt": (now + lasts).isoformat()}
    return value | {"endsAt": now.isoformat()}


def _annotations(alert: Alert, entry: AlertLines, link: str) -> dict[str, str]:
    return {
        "summary": f"{run_and_step(alert, MAX_LABEL_CHARS)}: {entry.headline}",
        "description": entry.sentence,
        **{label.replace(" ", "_"): text for label, text in entry.facts},
        "lost_samples": "\n".join(entry.lost),
        "log": "\n".join(entry.logged),
        "command": entry.command,
        "link": link,
    }
