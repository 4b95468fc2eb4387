"""From incidents of a training to alerts: one when an incident begins, one when it is over. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from eval_jobs.identity import content_hash
from tracker.domain.records.alerts import Alert, AlertEvidence, AlertKind, AlertState, AlertSubject, SubjectKind
from tracker.domain.records.display import count_text
from tracker.domain.records.training import IncidentEnd, Severity, TrainingIncident, TroubleSource

_DIVERGED = frozenset(("nan", "diverged", "collapsed"))
RECENT = timedelta(days=1)
_MAX_RANKS = 4
_MAX_NAMED = 3


@dataclass(frozen=True, kw_only=True)
class RunStanding:
    """Where a run stood when an incident began."""

    checkpoint: int | None = None
    """Step of its newest checkpoint that was found, and is therefore pinned; None: there is none."""
    is_evaluated: bool = False
    """Whether that checkpoint has a result."""


def alert_of_incident(incident: TrainingIncident, standing: RunStanding, now: datetime, *, lines: int) -> Alert:
    """Return the alert of an incident: firing while it lasts. `lines`: number of lines of the log to quote."""
    is_firing = not incident.is_over
    return Alert(
        fingerprint=alert_fingerprint(incident),
        run_id=incident.run_id,
        step=incident.cause.step,
        kind=alert_kind(incident),
        subject=AlertSubject(kind=SubjectKind.TRAINING, name=incident.name),
        state=AlertState.FIRING if is_firing else AlertState.RESOLVED,
        message=_begun_text(incident, standing) if is_firing else _over_text(incident),
        evidence=AlertEvidence(
            lines=tuple(line.text for line in incident.evidence if line.number)[:lines],
            ranks=incident.ranks,
            hint=incident.hint,
        ),
        command=f"tracker incidents show {incident.id}",
        raised_at=incident.seen_at if is_firing else now,
    )


def alert_fingerprint(incident: TrainingIncident) -> str:
    """Return the fingerprint of the alert of an incident."""
    return content_hash(["training", incident.run_id, incident.id])


def is_due_at(incident: TrainingIncident, now: datetime) -> bool:
    """Return whether an incident that lasts is to be reported: what training may survive waits for a while."""
    if incident.is_over or not _may_be_due(incident):
        return False
    since = max(incident.seen_at, incident.resumed_at or incident.seen_at)
    return incident.wait_s == 0 or now - since >= timedelta(seconds=incident.wait_s)


def _may_be_due(incident: TrainingIncident) -> bool:
    """Return whether an incident is worth an alert once it has lasted; what is shown at first is if no step follows."""
    return incident.is_alert or (incident.wait_s > 0 and not incident.is_history)


def due_at(incidents: Iterable[TrainingIncident], now: datetime, *, has_ended: bool) -> frozenset[str]:
    """Return the ids of the incidents to report; none waits once the training `has_ended`."""
    due = set()
    for incident in incidents:
        if is_due_at(incident, now) or (has_ended and incident.is_alert and waits_at(incident, now)):
            due.add(incident.id)
    return frozenset(due)


def states_to_report(
    incident: TrainingIncident, reported: AlertState | None, now: datetime, *, is_due: bool
) -> tuple[AlertState, ...]:
    """Return the state of an incident to report now; `reported`: the last reported state; None: there was none."""
    if is_due and reported is not AlertState.FIRING:
        return (AlertState.FIRING,)
    if not incident.is_over:
        return ()
    if reported is AlertState.FIRING:
        return (AlertState.RESOLVED,)
    if reported is None and _was_missed(incident, now):
        return (AlertState.FIRING, AlertState.RESOLVED)
    return ()


def _was_missed(incident: TrainingIncident, now: datetime) -> bool:
    """Return whether an incident was worth an alert at once, and began and ended between two looks not long ago."""
    if not incident.is_alert or incident.ended_by is IncidentEnd.DISMISSED:
        return False
    return incident.wait_s == 0 and now - incident.last_seen_at <= RECENT


def waits_at(incident: TrainingIncident, now: datetime) -> bool:
    """Return whether an incident will be reported if it still lasts after its wait."""
    return _may_be_due(incident) and not incident.is_over and not is_due_at(incident, now)


def incident_texts(incidents: Sequence[TrainingIncident]) -> list[str]:
    """Return the incidents that are worth an alert in words, newest first."""
    worth = [one for one in reversed(incidents) if one.cause.trouble.severity is Severity.ALERT]
    return [f"{incident_text(one)} ({state_text(one)})" for one in worth]


def naming_incidents(alerts: Iterable[Alert], incidents: Sequence[TrainingIncident]) -> tuple[Alert, ...]:
    """Return the alerts; those of a loss name the incidents between the two checkpoints that were compared."""
    return tuple(_naming(alert, incidents) for alert in alerts)


def _naming(alert: Alert, incidents: Sequence[TrainingIncident]) -> Alert:
    is_new_loss = alert.kind is AlertKind.LOSS and alert.state is AlertState.FIRING
    if not is_new_loss or alert.evidence is None:
        return alert
    steps = alert.evidence.baseline_steps
    between = _between(incidents, max(steps) if steps else alert.step, alert.step)
    if not between:
        return alert
    named = "; ".join(incident_text(one) for one in between[:_MAX_NAMED])
    return replace(alert, message=f"{alert.message} (in the training: {named})")


def _between(incidents: Iterable[TrainingIncident], after: int | None, up_to: int | None) -> list[TrainingIncident]:
    found = []
    for one in incidents:
        step = one.cause.step
        if step is None or after is None or up_to is None:
            continue
        if after < step <= up_to:
            found.append(one)
    return found


def alert_kind(incident: TrainingIncident) -> AlertKind:
    """Return the kind of alert for the class of an incident."""
    if incident.name in _DIVERGED:
        return AlertKind.DIVERGED
    trouble = incident.cause.trouble
    if trouble.source in (TroubleSource.SERIES, TroubleSource.RESOURCE):
        return AlertKind.ANOMALY
    if _is_terminal(incident):
        return AlertKind.CRASH
    return AlertKind.HANG if trouble.source is TroubleSource.PROCESS else AlertKind.FAULT


def _is_terminal(incident: TrainingIncident) -> bool:
    """Return whether it, or a consequence of it, ended the training."""
    return any(line.trouble.is_terminal and not line.trouble.is_stop for line in incident.evidence)


def incident_text(incident: TrainingIncident) -> str:
    """Return `GPU memory ran out on rank 7 at step 1198`."""
    trouble = incident.cause.trouble
    text = trouble.title or trouble.name.replace("_", " ")
    if incident.ranks:
        ranks = ", ".join(map(str, incident.ranks[:_MAX_RANKS]))
        more = f" and {len(incident.ranks) - _MAX_RANKS} more" if len(incident.ranks) > _MAX_RANKS else ""
        text += f" on rank{'s' if len(incident.ranks) > 1 else ''} {ranks}{more}"
    step = incident.cause.step
    return text if step is None else f"{text} at step {step}"


def state_text(incident: TrainingIncident) -> str:
    """Return `lasts`, `over at step 1210`, `dismissed: known`, `before the first start` and the like."""
    if incident.ended_by is IncidentEnd.DISMISSED:
        return f"dismissed: {incident.reason}"
    if incident.ended_by is IncidentEnd.ENDED:
        return "over: the training ended"
    if incident.ended_by is IncidentEnd.RESTARTED:
        return "over: the training was restarted"
    if incident.is_over:
        return "over" if incident.ended_step is None else f"over at step {_ended_at(incident)}"
    return "before the first start" if incident.is_history else "lasts"


def _ended_at(incident: TrainingIncident) -> str:
    after = " after a restart" if (incident.ended_step or 0) < (incident.cause.step or 0) else ""
    return f"{incident.ended_step}{after}"


def _begun_text(incident: TrainingIncident, standing: RunStanding) -> str:
    text = incident_text(incident)
    if incident.cause.trouble.source is not TroubleSource.LINE:
        likely = "" if incident.cause.is_proven else "likely "
        text += f": {likely}{incident.cause.text}"
    if alert_kind(incident) not in (AlertKind.CRASH, AlertKind.HANG, AlertKind.DIVERGED):
        return text
    if standing.checkpoint is None:
        return f"{text}; the run has no checkpoint yet"
    state = "is pinned and evaluated" if standing.is_evaluated else "is pinned"
    text += f"; last checkpoint {standing.checkpoint} {state}"
    lost = (incident.cause.step or 0) - standing.checkpoint
    if lost > 0 and _is_terminal(incident):
        text += f", {count_text(lost, 'step')} lost"
    return text


def _over_text(incident: TrainingIncident) -> str:
    text = incident_text(incident)
    if incident.ended_step is None:
        return f"{text}: {state_text(incident)}"
    return f"{text}: training makes progress again, step {_ended_at(incident)}"
