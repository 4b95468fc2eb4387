"""What is wrong at the end of a past that was evaluated afterwards: one look back instead of every turn. Pure.

for report, alerts in lasting_alerts(history.reports(run_id), history.incidents(run_id), history.open_alerts(run_id)):
    ...  # tell people
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tracker.domain.alerts.rules import alerts_for, loss_alerts
from tracker.domain.records.alerts import Alert, AlertKind, AlertState
from tracker.domain.records.types import Incident, Report

OF_CHECKPOINTS = frozenset((AlertKind.LOSS, AlertKind.LATENCY, AlertKind.MISSING, AlertKind.CHECKPOINT))
"""What single checkpoints show: in a past it may be over long since."""


def lasting_alerts(
    reports: Sequence[Report], incidents: Sequence[Incident], open_alerts: Sequence[Alert]
) -> Iterator[tuple[Report, tuple[Alert, ...]]]:
    """Yield what people were not told yet: losses that last, and what else is wrong at the newest checkpoint.

    A loss is told with the newest verdict on it, so that all that one checkpoint shows is one message.

    Args:
        reports: of one run, ordered by step.
        incidents: of the run.
        open_alerts: that people know.
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


# --- private


def _shows(report: Report, incident: Incident) -> bool:
    """Say whether a report holds a verdict on what was lost, after it was."""
    subject = (incident.benchmark, incident.subset, incident.measure)
    known = {(v.benchmark, v.subset, v.measure) for v in (*report.verdicts, *report.findings)}
    return report.step >= incident.opened_step and subject in known
