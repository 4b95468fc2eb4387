"""Turns a record into verdicts: stores it, compares it with the run so far, publishes it and sends alerts."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from eval_jobs.types import Checkpoint, EvalPlan, EvalRecord
from tracker.app.steps.curves import curves_at
from tracker.app.steps.known_results import KnownResults
from tracker.app.steps.screening import Reports, plans_of_rest, whole_record
from tracker.app.world import MeasurementPlan, World
from tracker.domain.alerts.rules import alerts_for, ended_alerts, loss_alerts
from tracker.domain.alerts.training import naming_incidents
from tracker.domain.best.choice import champions_of
from tracker.domain.log.events import EventKind, RunEvent, evaluation_event, verdict_changes
from tracker.domain.overview.costs import with_cost_so_far
from tracker.domain.records.alerts import Alert
from tracker.domain.records.branches import branches_of
from tracker.domain.records.display import ONCE
from tracker.domain.records.loss_text import open_losses
from tracker.domain.records.losses import Incident
from tracker.domain.records.policy import Policy
from tracker.domain.records.tracking import IncidentKind
from tracker.domain.records.types import Report
from tracker.domain.scores.changed_settings import changes_at, numbers_of
from tracker.domain.scores.known import content_of
from tracker.domain.scores.series import series_key, settings_by_benchmark
from tracker.domain.scores.series_changes import series_numbers
from tracker.domain.tracking.disruptions import disruptions_of
from tracker.domain.verdicts import out_of_order
from tracker.domain.verdicts.context import RunContext
from tracker.domain.verdicts.judge import judge
from tracker.domain.verdicts.rewind import left_behind, scores_of_newest
from tracker.domain.verdicts.screening import is_rest
from tracker.ports import RunHistory

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Reviewed:
    """What a record led to."""

    report: Report
    changes: tuple[RunEvent, ...] = ()
    """Verdicts of later checkpoints that became other ones."""


def interrupted_first(records: Iterable[EvalRecord], history: RunHistory) -> list[EvalRecord]:
    """Return records to review in their order, but first those whose review was interrupted: they are stored."""

    def is_new(record: EvalRecord) -> bool:
        stored = history.bare_record(record.plan.id)
        return stored is None or stored.finished_at < record.finished_at

    return sorted(records, key=is_new)


def review(world: World, record: EvalRecord, now: datetime) -> Reviewed:
    """Store a record, compute its verdicts against the run so far, publish it and send alerts.

    If a screened benchmark looks suspicious, its other samples are evaluated next, before all other checkpoints. All
    verdicts are stored at once after they were published: killed before, it is done again, and killed after, continued.
    """
    record, run_context = _recorded(world, record)
    warn_of_baseline(record, run_context, world.policy)
    neighbours = _neighbours(record, run_context, world.history)
    changes: tuple[RunEvent, ...] = ()
    report = _concluded(record, world.history)
    if report is None:
        scores = world.history.scores(record.plan.checkpoint.run_id)
        judging = out_of_order.Judging(scores=scores, run_context=run_context, policy=world.policy, now=now)
        report = judge(record, scores, run_context, world.policy, now=now)
        report = out_of_order.with_passed_losses(report, record, neighbours, judging)
        report = _with_pending(world, with_latency(world, report, record, run_context))
        cause, knowing = evaluation_event(record, report), _knowing(report, run_context)
        renewed, changes = _renewed(world, neighbours.to_judge_again(report), knowing, cause)
        report = out_of_order.settled(report, renewed, knowing.incidents)
        ask_rest(world, record, Reports(newest=report), run_context, now)
        publish_report(world, record, report, run_context)
        world.history.append_reports(report, *renewed, events=[cause, *changes])
    alerts = _alerts_of(report, neighbours.later, world.history)
    world.dispatcher.dispatch(alerts, record)
    _tell(world, neighbours.to_judge_again(report), run_context)
    publish_standing(world, record, run_context, now)
    return Reviewed(report=report, changes=changes)


def _knowing(report: Report, run_context: RunContext) -> RunContext:
    incidents = out_of_order.with_changes(run_context.incidents, report.incidents)
    return replace(run_context, incidents=incidents)


def _neighbours(record: EvalRecord, run_context: RunContext, history: RunHistory) -> out_of_order.Neighbours:
    later = out_of_order.overtaken_by(record, run_context.records, run_context.incidents)
    before = out_of_order.before_it(record, run_context.records) if later else None
    report = None if before is None else history.report(before.plan.id)
    if report is None or not out_of_order.shows_loss(report):
        before = None
    return out_of_order.Neighbours(before=before, later=later)


def _alerts_of(report: Report, later: Sequence[EvalRecord], history: RunHistory) -> tuple[Alert, ...]:
    """Return the alerts of the report on a record, whose `later` ones were evaluated before."""
    not_yet, open_alerts = out_of_order.not_yet_told(report, later), history.open_alerts(report.run_id)
    alerts = alerts_for(as_stored(report, history), open_alerts, later, not_yet=not_yet)
    return naming_incidents(alerts, history.training_incidents(report.run_id))


def _recorded(world: World, record: EvalRecord) -> tuple[EvalRecord, RunContext]:
    """Store a record with the known results that complete it; return it, and what is known of its run."""
    record = KnownResults(world.history, world.keeping.run).completed(record)
    record = whole_record(record, world.history)
    run_id = record.plan.checkpoint.run_id
    world.history.append(record)
    run_context = recall(world.history, run_id, world.policy)
    curves = curves_at(record.plan.checkpoint, world.history)
    run_context = replace(run_context, disruptions=disruptions_of(curves, world.policy.phases))
    return record, noting_settings(record, run_context, world.history)


def store_conclusion(record: EvalRecord, report: Report, history: RunHistory) -> RunEvent:
    """Store the report of a record that is in the history, and its incidents; return the event of the log."""
    event = evaluation_event(record, report)
    history.append_reports(report, events=[event])
    return event


def _concluded(record: EvalRecord, history: RunHistory) -> Report | None:
    """Return the stored report on exactly this record, if its review was interrupted after that; else None."""
    stored = history.report(record.plan.id)
    if stored is None or not history.is_logged(evaluation_event(record, stored).key):
        return None
    return stored


def publish_report(world: World, record: EvalRecord, report: Report, run_context: RunContext) -> None:
    """Publish a record with its verdicts."""
    numbers = numbers_of(record, run_context.changes)
    record = with_cost_so_far(record, run_context.records)
    world.tracking.publish(record, report, left_behind(record, run_context), numbers)


def publish_standing(world: World, record: EvalRecord, run_context: RunContext, now: datetime) -> None:
    """Publish the run's open losses and the aliases of its best checkpoints, as currently known.

    An alert that was raised while its loss was accepted is resolved.
    """
    checkpoint = record.plan.checkpoint
    branches = branches_of(one.plan.checkpoint for one in (*run_context.records, record))
    scores = scores_of_newest(world.history.scores(checkpoint.run_id), branches)
    incidents = world.history.incidents(checkpoint.run_id)
    champions = champions_of(scores, incidents, min_coverage=world.policy.min_coverage)
    losses = open_losses(incidents, series_numbers(run_context.changes))
    world.dispatcher.dispatch(tuple(ended_alerts(incidents, world.history.open_alerts(checkpoint.run_id), now)))
    world.tracking.publish_incidents(checkpoint.run_id, losses, record.finished_at, IncidentKind.LOSS)
    world.tracking.publish_champions(checkpoint, champions)


def ask_rest(world: World, record: EvalRecord, reports: Reports, run_context: RunContext, now: datetime) -> None:
    """Queue the samples that screens left out where the newest of `reports` needs them. Queued before: no-op."""
    if world.measurement.screening is None:
        return
    for rest in plans_of_rest(record, reports, run_context.records, world.keeping.pins.given_up()):
        world.queue.add(rest, now=now, backlog=world.order.backlog, keep=True)


def rejudge(world: World, later: Sequence[EvalRecord], run_context: RunContext, cause: RunEvent) -> None:
    """Recompute the verdicts of checkpoints whose past `cause` has changed, and publish those that differ.

    A loss that the newest checkpoint now shows raises an alert; one that no verdict shows any more ends as corrected.
    """
    renewed, changes = _renewed(world, later, run_context, cause)
    # After MLflow: after a crash in between, the verdicts must still differ.
    world.history.append_reports(*renewed, events=changes)
    _tell(world, later, run_context)


def _renewed(
    world: World, later: Sequence[EvalRecord], run_context: RunContext, cause: RunEvent
) -> tuple[list[Report], tuple[RunEvent, ...]]:
    """Return new reports on records, which are published if they differ, and the verdicts that became other ones."""
    known = [(record, before) for record in later if (before := world.history.report(record.plan.id)) is not None]
    if not known:
        return [], ()  # their own reviews are still to come
    changes: list[RunEvent] = []
    reports = _judged_again(world, known, run_context, cause)
    for (record, before), report in zip(known, reports, strict=True):
        changed = tuple(verdict_changes(before, report, cause))
        _show(world, record, Reports(newest=report, before=before), run_context, is_changed=bool(changed))
        changes += changed
    return reports, tuple(changes)


def _judged_again(
    world: World, known: Sequence[tuple[EvalRecord, Report]], run_context: RunContext, cause: RunEvent
) -> list[Report]:
    """Return new reports on records, of which the old ones are known."""
    scores = world.history.scores(cause.run_id)

    def judged(context: RunContext) -> list[Report]:
        judging = out_of_order.Judging(scores=scores, run_context=context, policy=world.policy, now=cause.at)
        found = []
        for one, old in known:
            report = out_of_order.rejudged(old, judging.judged(one))
            judging = judging.knowing(report.incidents)
            found.append(_with_pending(world, report, cause))
        return found

    reports, context = judged(run_context), run_context
    settings = [settings_by_benchmark(one) for one, _ in known]
    corrected: list[Incident] = []
    for _ in known:  # without these, and with other onsets, the verdicts may be other ones
        gone = out_of_order.withdrawn(context.incidents, reports, settings)
        changes = (*out_of_order.moved(context.incidents, reports), *gone)
        if not changes:
            break
        corrected += gone
        context = replace(context, incidents=out_of_order.with_changes(context.incidents, changes))
        reports = judged(context)
    if corrected:
        reports[-1] = replace(reports[-1], incidents=(*reports[-1].incidents, *corrected))
    return reports


def _show(world: World, record: EvalRecord, reports: Reports, run_context: RunContext, *, is_changed: bool) -> None:
    """Queue what a recomputed report needs, and publish it if it differs: of verdicts, or in its newest numbers."""
    ask_rest(world, record, reports, run_context, reports.newest.created_at)
    is_newest = not out_of_order.overtaken_by(record, run_context.records)
    if is_changed or (is_newest and _has_other_numbers(reports)):
        full = world.history.record(record.plan.id)
        if full is not None:
            publish_report(world, full, reports.newest, run_context)


def _tell(world: World, records: Iterable[EvalRecord], run_context: RunContext) -> None:
    """Send the alerts of the stored reports on records, which were recomputed."""
    for record in records:
        report = world.history.report(record.plan.id)
        if report is None:
            continue
        later = out_of_order.overtaken_by(record, run_context.records)
        not_yet, open_alerts = out_of_order.not_yet_told(report, later), world.history.open_alerts(report.run_id)
        alerts = loss_alerts(as_stored(report, world.history), open_alerts, not_yet=not_yet)
        if alerts:
            world.dispatcher.dispatch(alerts, world.history.record(record.plan.id))


def _has_other_numbers(reports: Reports) -> bool:
    """Return whether verdicts have other numbers than before; MLflow describes those of the newest checkpoint."""
    return reports.before is not None and reports.newest.verdicts != reports.before.verdicts


def as_stored(report: Report, history: RunHistory) -> Report:
    """Return the report with its incidents as they are stored: a user may have accepted one meanwhile."""
    if not report.incidents:
        return report
    stored = {incident.key: incident for incident in history.incidents(report.run_id)}
    return replace(report, incidents=tuple(stored.get(one.key, one) for one in report.incidents))


def _with_pending(world: World, report: Report, cause: RunEvent | None = None) -> Report:
    """Return a report with the earlier checkpoints still to be evaluated; that of `cause` has just been."""
    open_steps = set(world.queue.open_steps(report.run_id, sweeps=False))
    if cause is not None and cause.kind is not EventKind.ACCEPTED:
        open_steps -= {cause.step}
    return replace(report, pending_steps=tuple(sorted(step for step in open_steps if step < report.step)))


def noting_settings(record: EvalRecord, run_context: RunContext, history: RunHistory) -> RunContext:
    """Store the changes of settings that a record shows, and return the run with them."""
    for change in changes_at(record, run_context.changes, run_context.records):
        history.append_series_change(change)
    return replace(run_context, changes=history.series_changes(record.plan.checkpoint.run_id))


def with_latency(world: World, report: Report, record: EvalRecord, run_context: RunContext) -> Report:
    """Return the report on known results with the latency verdicts on the same weights, which were not timed again."""
    plan, timed = record.plan, None
    if _has_own_latency(plan, world.measurement):
        return report
    for one in run_context.records:
        if one.probes and content_of(one.plan.checkpoint) == content_of(plan.checkpoint):
            timed = world.history.report(one.plan.id)
    if timed is None:
        return report
    return replace(report, latency=timed.latency)


def _has_own_latency(plan: EvalPlan, measurement: MeasurementPlan) -> bool:
    """Return whether a plan carries its loads, or is none that does: only the first suite has loads, no rest does."""
    if plan.loads or not measurement.loads:
        return True
    return plan.suite.name != measurement.suites[0].name or is_rest(plan)


def new_branches(history: RunHistory, found: Sequence[Checkpoint]) -> Iterator[Checkpoint]:
    """Yield the checkpoints that were written over evaluated ones, because training went back."""
    for run_id in dict.fromkeys(checkpoint.run_id for checkpoint in found):
        evaluated = [record.plan.checkpoint for record in history.records(run_id)]
        rewrites = branches_of((*evaluated, *found)).rewrites
        yield from (one for one in found if one.run_id == run_id and one in rewrites)


def recall(history: RunHistory, run_id: str, policy: Policy) -> RunContext:
    """Return what is known of a run in addition to its scores."""
    return RunContext(
        incidents=history.incidents(run_id),
        acceptances=history.acceptances(run_id),
        pinned=None if policy.pinned is None else history.scores(policy.pinned.run_id),
        records=history.records(run_id),
        calibrations=history.calibrations(),
        changes=history.series_changes(run_id),
    )


def warn_of_baseline(record: EvalRecord, run_context: RunContext, policy: Policy) -> None:
    """Warn which results have no comparable result at the baseline checkpoint, and so are not compared with it."""
    pinned = policy.pinned
    if pinned is None or run_context.pinned is None:
        return
    lacking = []
    for result in record.results:
        series = run_context.pinned.series.get(series_key(record.plan, result))
        if series is None or series.row_of(pinned.step) is None:
            lacking.append(result.benchmark)
    if lacking:
        log.warning(
            "%s: not compared with policy.baseline %s@%d, which has no comparable result: "
            "evaluate it with these settings, or change policy.baseline",
            ", ".join(lacking),
            pinned.run_id,
            pinned.step,
            extra=ONCE,
        )
