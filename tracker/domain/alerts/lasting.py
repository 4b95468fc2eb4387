"""What is wrong at the end of a backfill: one summary instead of an alert for every change. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tracker.domain.alerts.rules import alerts_for, loss_alerts
from tracker.domain.records.alerts import Alert, AlertKind, AlertState
from tracker.domain.records.losses import Incident
from tracker.domain.records.types import Report

OF_CHECKPOINTS = frozenset((AlertKind.LOSS, AlertKind.LATENCY, AlertKind.MISSING, AlertKind.CHECKPOINT))
"""Kinds of alerts about single checkpoints: in a backfill the cause may already be over."""


def lasting_alerts(
    reports: Sequence[Report], incidents: Sequence[Incident], open_alerts: Sequence[Alert]
) -> Iterator[tuple[Report, tuple[Alert, ...]]]:
    """Yield the alerts that were not sent yet: open losses, and what else is wrong at the newest checkpoint.

    A loss is reported with its newest verdict, so that everything about one checkpoint is one message. `reports` are of
    one run, ordered by step; `open_alerts` were sent and are firing.
    """
    shown_by: dict[str, list[Incident]] = {}
    for incident in incidents:
        newest = next((r for r in reversed(reports) if _shows(r, incident)), None)
        if incident.closed_step is None and newest is not None:
            shown_by.setdefault(newest.plan_id, []).append(incident)
    for report in reports:
        lasting = replace(report, incidents=tuple(shown_by.get(report.plan_id, ())))
        is_last = report is reports[-1]
        found = alerts_for(lasting, open_alerts) if is_last else loss_alerts(lasting, open_alerts)
        alerts = tuple(alert for alert in found if alert.state is AlertState.FIRING)
        if alerts:
            yield report, alerts


def _shows(report: Report, incident: Incident) -> bool:
    subject = (incident.benchmark, incident.subset, incident.measure)
    known = {(v.benchmark, v.subset, v.measure) for v in (*report.verdicts, *report.findings)}
    return report.step >= incident.opened_step and subject in known
