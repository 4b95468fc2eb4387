"""What follows from the record of a calibration: it is kept, and people are told of benchmarks that are unfit."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from eval_jobs.types import EvalRecord
from tracker.domain.alerts.rules import alerts_of_calibration
from tracker.domain.calibration.noise import calibration_of
from tracker.domain.records.alerts import Alert
from tracker.domain.records.calibration import Calibration
from tracker.domain.records.types import Policy
from tracker.ports import AlertStore, CalibrationStore, RequestQueue


@dataclass(frozen=True, kw_only=True)
class CalibrationContext:
    """What a finished calibration is taken over with, by a watcher or by the command that asked for it."""

    queue: RequestQueue
    calibrations: CalibrationStore
    alerts: AlertStore
    policy: Policy
    dispatch: Callable[[Iterable[Alert]], None]
    """Tells every channel and remembers that it did."""


def take_calibration(record: EvalRecord, context: CalibrationContext) -> Calibration:
    """Keep what the record of a calibration shows, tell people what they must know, and return it.

    Nothing of it is a result of the run: no verdict, curve or series ever holds it. Doing it twice is harmless.
    """
    calibration = calibration_of(record, min_coverage=context.policy.min_coverage)
    context.calibrations.append_calibration(calibration)
    firing = context.alerts.open_alerts(record.plan.checkpoint.run_id)
    context.dispatch(alerts_of_calibration(calibration, firing, min_effect=context.policy.min_effect))
    context.queue.acknowledge(record.plan.id)  # in the end: a crash in between repeats it
    return calibration
