"""Reads from the history what `tracker compare` and `tracker gate` need to compare two evaluated checkpoints."""

from eval_jobs.errors import StoreError
from eval_jobs.types import EvalRecord
from tracker.domain.compare.view import RunNoise
from tracker.domain.records.types import Measure, Policy, Report
from tracker.domain.verdicts.candidates import known_jitter, steps_for_jitter
from tracker.ports import MeasurementStore, RecordStore


def whole_record_of(report: Report, records: RecordStore) -> EvalRecord:
    """Return the record of a report, with its samples.

    Raises:
        StoreError: the record or its samples are missing.
    """
    record = records.record(report.plan_id)
    if record is None:  # a report without its record
        what = f"missing results of step {report.step} of {report.run_id}"
        raise StoreError(what, hint="restore the database from a backup")
    return record


def noise_of_run(run_id: str, history: MeasurementStore, policy: Policy) -> RunNoise:
    """Return the jitter of a run's series, and the calibrations of all runs."""
    steps = steps_for_jitter(history.records(run_id))
    jitters = known_jitter(history.scores(run_id, (Measure.SCORE,), steps), policy.min_coverage)
    return RunNoise(jitters=jitters, calibrations=history.calibrations())
