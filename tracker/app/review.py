"""A record becomes a verdict: it is remembered, judged against the run so far, published, and people are told."""

import logging
from collections.abc import Sequence
from datetime import datetime

from eval_jobs.types import EvalRecord
from tracker.app.steps.screening import plans_of_rest, whole_record
from tracker.app.world import World
from tracker.domain.alerts.rules import alerts_for, loss_alerts
from tracker.domain.best.champions import champions_of
from tracker.domain.overview.costs import with_cost_so_far
from tracker.domain.records.branches import branches_of
from tracker.domain.records.types import Policy, Report
from tracker.domain.scores.run_scores import series_key
from tracker.domain.verdicts.candidates import RunContext
from tracker.domain.verdicts.judge import judge
from tracker.domain.verdicts.out_of_order import overtaken_by, rejudged, words_by_benchmark
from tracker.domain.verdicts.rewind import left_behind, scores_of_newest
from tracker.ports import RunHistory

log = logging.getLogger(__name__)


def review(world: World, record: EvalRecord, now: datetime) -> Report:
    """Remember a record, judge it against the run so far, publish it and tell people.

    Where a part was asked and looks suspicious, the others are asked next, of this checkpoint before all others.
    """
    record = whole_record(record, world.history)
    run_id = record.plan.checkpoint.run_id
    world.history.append(record)
    run_context = recall(world.history, run_id, world.policy)
    warn_of_baseline(record, run_context, world.policy)
    report = judge(record, world.history.scores(run_id), run_context, world.policy, now=now)
    store_conclusion(report, world.history)
    ask_rest(world, record, report, run_context, now)
    world.tracking.publish(with_cost_so_far(record, run_context.records), report, left_behind(record, run_context))
    update_aliases(world, record, run_context)
    later = overtaken_by(record, run_context.records)
    world.dispatcher.dispatch(alerts_for(report, world.history.open_alerts(run_id), later), record)
    if later:
        rejudge(world, later, run_context, now)
    return report


def store_conclusion(report: Report, history: RunHistory) -> None:
    """Store what was concluded of a record that is in the history."""
    for incident in report.incidents:  # keyed by what opened it: a crash in between repeats it, harmlessly
        history.append_incident(incident)
    history.append_report(report)


def update_aliases(world: World, record: EvalRecord, run_context: RunContext) -> None:
    """Let the aliases of the run name its best checkpoints, as they are known now."""
    checkpoint = record.plan.checkpoint
    branches = branches_of(one.plan.checkpoint for one in (*run_context.records, record))
    scores = scores_of_newest(world.history.scores(checkpoint.run_id), branches)
    world.tracking.publish_champions(checkpoint, champions_of(scores, min_coverage=world.policy.min_coverage))


def ask_rest(world: World, record: EvalRecord, report: Report, run_context: RunContext, now: datetime) -> None:
    """Ask what screens have left out where that would tell more; asked before: nothing happens."""
    if world.measurement.screening is None:
        return
    for rest in plans_of_rest(record, report, run_context.records, world.keeping.pins.given_up()):
        world.queue.add(rest, now=now, backlog=world.order.backlog, keep=True)


def rejudge(world: World, later: Sequence[EvalRecord], run_context: RunContext, now: datetime) -> None:
    """Judge checkpoints again whose past has grown; a loss that the newest one shows now is told."""
    run_id = later[0].plan.checkpoint.run_id
    scores = world.history.scores(run_id)
    for record in later:
        before = world.history.report(record.plan.id)
        if before is None:
            continue  # its own review comes
        report = rejudged(before, judge(record, scores, run_context, world.policy, now=now))
        for incident in report.incidents:
            world.history.append_incident(incident)
        ask_rest(world, record, report, run_context, now)
        has_changed = words_by_benchmark(report) != words_by_benchmark(before)
        if has_changed and (full := world.history.record(record.plan.id)) is not None:
            world.tracking.publish(
                with_cost_so_far(full, run_context.records), report, left_behind(record, run_context)
            )
        world.history.append_report(report)  # after MLflow: a crash in between must leave the words different
        world.dispatcher.dispatch(loss_alerts(report, world.history.open_alerts(run_id)))


def recall(history: RunHistory, run_id: str, policy: Policy) -> RunContext:
    """Return what is known of a run beside its scores."""
    return RunContext(
        incidents=history.incidents(run_id),
        acceptances=history.acceptances(run_id),
        pinned=None if policy.pinned is None else history.scores(policy.pinned.run_id),
        records=history.records(run_id),
        calibrations=history.calibrations(),
    )


def warn_of_baseline(record: EvalRecord, run_context: RunContext, policy: Policy) -> None:
    """Say which results have no counterpart at the pinned checkpoint, so that nobody relies on a comparison."""
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
        )
