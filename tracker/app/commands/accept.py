"""`tracker accept`: a user declares that the level of a benchmark is the new normal."""

from collections.abc import Iterable
from dataclasses import replace

from eval_jobs.types import EvalRecord
from tracker.app.review import publish_standing, recall, rejudge
from tracker.app.world import World
from tracker.domain.alerts.rules import alert_of_acceptance
from tracker.domain.best.retention import identity_of
from tracker.domain.log import events
from tracker.domain.records.losses import Acceptance
from tracker.domain.scores.series import series_keys
from tracker.domain.verdicts.losses.incidents import accepted, is_covered


def accept(world: World, acceptance: Acceptance) -> None:
    """Store an acceptance, close the incidents that it covers, resolve their alerts, and recompute the verdicts.

    From its step on, checkpoints are compared only with each other, if they have the settings of the newest result at
    this step. Repeating it is harmless.
    """
    history, dispatcher = world.history, world.dispatcher
    run_id, step = acceptance.run_id, acceptance.step
    acceptance = replace(acceptance, series=_settings_of(acceptance, history.records(run_id)))
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
    newest: dict[object, EvalRecord] = {}
    for record in run_context.records:  # by step, and of one step by time
        if record.plan.checkpoint.step >= step:
            newest[identity_of(record.plan.checkpoint), record.plan.suite.name] = record
    rejudge(world, tuple(newest.values()), run_context, events.acceptance_event(acceptance))
    if run_context.records:
        publish_standing(world, run_context.records[-1], run_context, acceptance.accepted_at)


def _settings_of(acceptance: Acceptance, records: Iterable[EvalRecord]) -> str:
    """Return the settings of the newest result that an acceptance is about; empty if there is none."""
    settings = ""
    for record in records:  # of one step by time
        if record.plan.checkpoint.step == acceptance.step:
            keys = series_keys(record.plan, record.outcomes)
            settings = next((key.settings for key in keys if key.benchmark == acceptance.benchmark), settings)
    return settings
