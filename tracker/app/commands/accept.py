"""`tracker accept`: a user declares that the level of a benchmark is the new normal."""

from tracker.app.review import recall, rejudge
from tracker.app.world import World
from tracker.domain.alerts.rules import alert_of_acceptance
from tracker.domain.log import events
from tracker.domain.records.types import Acceptance
from tracker.domain.verdicts.incidents import accepted, is_covered


def accept(world: World, acceptance: Acceptance) -> None:
    """Store an acceptance, close the incidents that it covers, resolve their alerts, and recompute the verdicts.

    From its step on, checkpoints are compared only with each other. Repeating it is harmless.
    """
    history, dispatcher = world.history, world.dispatcher
    run_id, step = acceptance.run_id, acceptance.step
    history.append_acceptance(acceptance)
    acceptances = history.acceptances(run_id)
    covered = [e for e in history.incidents(run_id) if is_covered(e, acceptance, acceptances)]
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
    rejudge(world, later, run_context, events.accepted(acceptance))
