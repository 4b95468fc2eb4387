"""What follows from the record of a calibration: it is kept, and people are told of benchmarks that are unfit."""

from __future__ import annotations

from eval_jobs.types import EvalRecord
from tracker.domain.alerts import alerts_of_calibration
from tracker.domain.calibration import calibration_of
from tracker.domain.calibration_types import Calibration
from tracker.domain.types import Alert, Policy
from tracker.ports import History


def conclude(history: History, record: EvalRecord, policy: Policy) -> tuple[Calibration, tuple[Alert, ...]]:
    """Keep what the record of a calibration shows; return it, and what people must be told. Doing it twice is harmless.

    Nothing of it is a result of the run: no verdict, curve or series ever holds it.
    """
    calibration = calibration_of(record, min_coverage=policy.min_coverage)
    history.append_calibration(calibration)
    open_alerts = history.open_alerts(record.plan.checkpoint.run_id)
    return calibration, alerts_of_calibration(calibration, open_alerts, min_effect=policy.min_effect)
