"""Known results with the present settings: going back to earlier settings gives the verdicts that the run had."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from eval_jobs.identity import screen_plan
from eval_jobs.records.run_scope import is_of
from eval_jobs.types import EvalPlan, EvalRecord
from tracker.app.plans import plans_for
from tracker.app.review import (
    as_stored,
    noting_settings,
    publish_report,
    publish_standing,
    recall,
    store_conclusion,
    with_latency,
)
from tracker.app.steps.curves import curves_at
from tracker.app.steps.known_results import KnownResults
from tracker.app.world import MeasurementPlan, World
from tracker.domain.alerts.rules import loss_alerts
from tracker.domain.best.retention import Identity, identity_of
from tracker.domain.records.branches import branches_of
from tracker.domain.records.imported import stands_for_import
from tracker.domain.scores.known import covers
from tracker.domain.tracking.disruptions import disruptions_of
from tracker.domain.verdicts.judge import judge


def restore(world: World, now: datetime) -> int:
    """Judge checkpoints by known results with the present settings, if others were the newest; return their number."""
    known = KnownResults(world.history, world.keeping.run)
    count = 0
    for run_id in world.history.runs():
        if is_of(run_id, world.keeping.run):
            count += _restore_run(world, run_id, known, now)
    return count


def _restore_run(world: World, run_id: str, known: KnownResults, now: datetime) -> int:
    records = world.history.records(run_id)
    restored = list(_not_judged(world, records))
    for plan in _superseded(world.measurement, records):
        record = known.record_of(plan, now)
        if record is not None:
            world.history.append(record)
            restored.append(record)
    _review_again(world, restored, now)
    return len(restored)


def _not_judged(world: World, records: Sequence[EvalRecord]) -> Iterator[EvalRecord]:
    """Yield the records that took no evaluation and have no verdicts: a kill came in between."""
    for record in _newest(records):
        if record.cost is None and world.history.report(record.plan.id) is None:
            yield record


def _review_again(world: World, records: Sequence[EvalRecord], now: datetime) -> None:
    """Compute the verdicts on stored records of one run, by step, and publish them; only lasting losses are alerts."""
    if not records:
        return
    newest = records[-1].plan.checkpoint
    run_context = recall(world.history, newest.run_id, world.policy)
    curves = curves_at(newest, world.history)
    run_context = replace(run_context, disruptions=disruptions_of(curves, world.policy.phases))
    scores = world.history.scores(newest.run_id)
    for record in records:
        run_context = noting_settings(record, run_context, world.history)
        report = judge(record, scores, run_context, world.policy, now=now)
        report = with_latency(world, report, record, run_context)
        store_conclusion(record, report, world.history)
        publish_report(world, record, report, run_context)
        world.dispatcher.dispatch(
            loss_alerts(as_stored(report, world.history), world.history.open_alerts(newest.run_id))
        )
    publish_standing(world, records[-1], run_context, now)


def _superseded(measurement: MeasurementPlan, records: Sequence[EvalRecord]) -> Iterator[EvalPlan]:
    """Yield by step the plans, by the present settings, of checkpoints whose newest results had other ones."""
    for record in _newest(records):
        checkpoint = record.plan.checkpoint
        for plan in plans_for(checkpoint, measurement, first=checkpoint):
            if plan.suite.name == record.plan.suite.name and not covers(record, plan):
                yield _smallest(plan, measurement)


def _newest(records: Sequence[EvalRecord]) -> Iterable[EvalRecord]:
    """Return the newest record of each checkpoint and suite, without those that training left behind."""
    branches = branches_of(record.plan.checkpoint for record in records)
    newest: dict[tuple[Identity, str], EvalRecord] = {}
    for record in records:  # of one checkpoint by time
        checkpoint = record.plan.checkpoint
        if branches.left_by(checkpoint) is None and not stands_for_import(checkpoint):
            newest[identity_of(checkpoint), record.plan.suite.name] = record
    return newest.values()


def _smallest(plan: EvalPlan, measurement: MeasurementPlan) -> EvalPlan:
    if measurement.screening is None:
        return plan
    return screen_plan(plan, measurement.screening.screen)
