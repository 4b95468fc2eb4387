"""Handles the record of a calibration: stores it and sends alerts for benchmarks that are too noisy."""

from dataclasses import dataclass

from eval_jobs.types import EvalRecord
from tracker.app.steps.alerting import AlertDispatcher
from tracker.domain.alerts.rules import alerts_of_calibration
from tracker.domain.calibration.noise import calibration_of
from tracker.domain.records.calibration import Calibration
from tracker.domain.records.policy import Policy
from tracker.ports import CalibrationStore, RequestQueue


@dataclass(frozen=True, kw_only=True)
class CalibrationContext:
    """What handling a finished calibration needs, in a watcher or in `tracker calibrate`."""

    queue: RequestQueue
    calibrations: CalibrationStore
    policy: Policy
    dispatcher: AlertDispatcher


def take_calibration(record: EvalRecord, context: CalibrationContext) -> Calibration:
    """Store the calibration that a record shows, send alerts for it, and return it.

    It is not a result of the run: no verdict, curve or series ever contains it. Repeating it is harmless.
    """
    calibration = calibration_of(record, min_coverage=context.policy.min_coverage)
    context.calibrations.append_calibration(calibration)
    firing = context.dispatcher.alerts.open_alerts(record.plan.checkpoint.run_id)
    context.dispatcher.dispatch(alerts_of_calibration(calibration, firing, min_effect=context.policy.min_effect))
    context.queue.acknowledge(record.plan.id)  # last: a crash in between repeats the rest harmlessly
    return calibration
