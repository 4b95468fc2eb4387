"""`tracker accept`: a user declares that the level of a benchmark is the new normal."""

from dataclasses import dataclass
from datetime import datetime

from tracker.app.review import recall, rejudge
from tracker.app.world import World
from tracker.domain.alerts.rules import alert_of_acceptance
from tracker.domain.records.types import Acceptance, Closing, Incident
from tracker.domain.verdicts.incidents import accepted


@dataclass(frozen=True, kw_only=True)
class AcceptedLevel:
    """What is accepted: the level of a benchmark at a step, and why."""

    run_id: str
    step: int
    benchmark: str
    reason: str


def accept(world: World, level: AcceptedLevel, *, now: datetime) -> Acceptance:
    """Store the acceptance, close the incidents that it covers, resolve their alerts, and recompute the verdicts.

    From its step on, checkpoints are compared only with each other. Repeating it is harmless.
    """
    history, dispatcher = world.history, world.dispatcher
    run_id, step = level.run_id, level.step
    covered = [e for e in history.incidents(run_id) if _is_covered(e, level)]
    acceptance = Acceptance(
        run_id=run_id,
        step=step,
        benchmark=level.benchmark,
        from_step=step,
        reason=level.reason,
        accepted_at=now,
    )
    history.append_acceptance(acceptance)
    firing = {alert.fingerprint for alert in dispatcher.alerts.open_alerts(run_id)}
    for incident in covered:
        ended = accepted(incident, step)
        history.append_incident(ended)
        alert = alert_of_acceptance(ended, acceptance)
        if alert.fingerprint in firing:
            dispatcher.dispatch([alert])
    run_context = recall(history, run_id, world.policy)
    later = [record for record in run_context.records if record.plan.checkpoint.step >= step]
    later.sort(key=lambda record: (record.plan.checkpoint.step, record.finished_at))
    rejudge(world, later, run_context, now)
    return acceptance


# --- private


def _is_covered(incident: Incident, level: AcceptedLevel) -> bool:
    if incident.benchmark != level.benchmark or incident.opened_step > level.step:
        return False
    if incident.closed_step is None:
        return True
    return (incident.closed_step, incident.closed_by) == (level.step, Closing.ACCEPTED)
