"""Reads from the history what comparisons of two checkpoints or of whole runs need."""

from collections.abc import Collection, Iterator
from dataclasses import replace

from eval_jobs.errors import StoreError
from eval_jobs.spending import total
from eval_jobs.types import EvalRecord
from tracker.app.steps.curves import curves_at
from tracker.domain.compare.runs import RunToCompare, tokens_of
from tracker.domain.compare.view import RunNoise
from tracker.domain.records.branches import branches_of
from tracker.domain.records.losses import Measure
from tracker.domain.records.policy import Policy
from tracker.domain.records.types import Report
from tracker.domain.verdicts.candidates import known_jitter, steps_for_jitter
from tracker.domain.verdicts.rewind import scores_of_newest
from tracker.ports import MeasurementStore, RecordStore, RunHistory

_AT_ONCE = 5
"""Benchmarks of a comparison with samples in memory at a time."""


def parts_to_compare(reports: tuple[Report, Report], records: RecordStore) -> Iterator[tuple[EvalRecord, EvalRecord]]:
    """Yield the records of two reports in parts: in each, some of the benchmarks with their samples.

    Raises:
        StoreError: as `whole_record_of`.
    """
    before, after = (_known(records.bare_record(report.plan_id), report) for report in reports)
    names = list(dict.fromkeys(outcome.benchmark for outcome in (*after.outcomes, *before.outcomes)))
    for at in range(0, max(len(names), 1), _AT_ONCE):
        chosen = names[at : at + _AT_ONCE]
        yield _part_of(reports[0], chosen, records), _part_of(reports[1], chosen, records)


def whole_record_of(report: Report, records: RecordStore) -> EvalRecord:
    """Return the record of a report, with its samples.

    Raises:
        StoreError: the record or its samples are missing.
    """
    return _known(records.record(report.plan_id), report)


def noise_of_run(run_id: str, history: MeasurementStore, policy: Policy) -> RunNoise:
    """Return the jitter of a run's series, and the calibrations of all runs."""
    steps, incidents = steps_for_jitter(history.records(run_id)), history.incidents(run_id)
    jitters = known_jitter(history.scores(run_id, (Measure.SCORE,), steps), policy.min_coverage, incidents)
    return RunNoise(jitters=jitters, calibrations=history.calibrations())


def run_to_compare(run_id: str, history: RunHistory) -> RunToCompare:
    """Return what is known of a run, without the checkpoints that a rewind discarded.

    Raises:
        StoreError: samples of the run are missing or damaged.
    """
    known = history.records(run_id)
    branches = branches_of(record.plan.checkpoint for record in known)
    records = tuple(record for record in known if branches.left_by(record.plan.checkpoint) is None)
    costs = [record.cost for record in known if record.cost is not None]
    return RunToCompare(
        scores=scores_of_newest(history.scores(run_id, (Measure.SCORE,)), branches),
        records=records,
        incidents=history.incidents(run_id),
        cost=total(costs) if costs else None,
        tokens=tokens_of(curves_at(records[-1].plan.checkpoint, history) if records else ()),
    )


def _known(record: EvalRecord | None, report: Report) -> EvalRecord:
    if record is None:  # a report without its record
        what = f"missing results of step {report.step} of {report.run_id}"
        raise StoreError(what, hint="restore the database from a backup")
    return record


def _part_of(report: Report, benchmarks: Collection[str], records: RecordStore) -> EvalRecord:
    record = _known(records.record(report.plan_id, benchmarks), report)
    return replace(record, outcomes=tuple(one for one in record.outcomes if one.benchmark in benchmarks))
