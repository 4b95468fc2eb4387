"""What was measured and concluded: one port for each kind of record."""

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from eval_jobs.types import EvalRecord
from tracker.domain.log.events import RunEvent
from tracker.domain.records.alerts import Alert
from tracker.domain.records.calibration import Calibration
from tracker.domain.records.losses import Acceptance, Incident, Measure
from tracker.domain.records.types import Gap, Report
from tracker.domain.scores.run_scores import RunScores
from tracker.domain.scores.series_changes import SeriesChange
from tracker.ports.health import TrainingHistory


class RecordStore(Protocol):
    """All evaluation records. Appending is idempotent."""

    def append(self, record: EvalRecord) -> None:
        """Store a record under its plan id; the same id again replaces it."""

    def record(self, plan_id: str, benchmarks: Collection[str] | None = None) -> EvalRecord | None:
        """Return one record with all samples and their texts, or None; with `benchmarks` only these have samples.

        If texts were deleted to save space, the samples have none and `has_texts` of their result is false.
        """

    def bare_record(self, plan_id: str) -> EvalRecord | None:
        """Return one record without samples, or None."""

    def records(self, run_id: str) -> tuple[EvalRecord, ...]:
        """Return the run's records without samples, ordered by (step, finished_at, plan id)."""

    def scores(
        self, run_id: str, measures: tuple[Measure, ...] = tuple(Measure), steps: Collection[int] | None = None
    ) -> RunScores:
        """Return all scores of the run, equal to those computed from all its records.

        Fewer measures and fewer `steps` (None: all) take less time. What is read of all steps is cached in memory:
        another call with the same measures reads only the samples of records that are new or were replaced since,
        by any process.
        """

    def runs(self) -> tuple[str, ...]:
        """Return the ids of all runs, ordered by name."""


class TextStore(Protocol):
    """Full texts of answers: the part of the records that may be deleted to save space."""

    def texts(self, run_id: str) -> Mapping[str, int]:
        """Return the plans of the run whose texts are kept: plan id -> size in bytes."""

    def forget_texts(self, plan_id: str) -> None:
        """Delete the texts of a plan's answers; scores and questions stay. No-op if there are none."""


class ReportStore(Protocol):
    """The report of each record. Appending is idempotent."""

    def append_reports(self, *reports: Report, events: Iterable[RunEvent] = ()) -> None:
        """Store reports under their plan ids, their incidents, and events in the log: all of it or nothing.

        The same plan id again replaces a report. For an incident see `IncidentStore.append_incident`.
        """

    def report(self, plan_id: str) -> Report | None:
        """Return the report of a plan, or None."""

    def reports(self, run_id: str) -> tuple[Report, ...]:
        """Return the run's reports ordered by step."""

    def outlines(self, run_id: str) -> tuple[Report, ...]:
        """Return the run's reports; those that newer ones replace on all their benchmarks as `records.outlines`."""


class IncidentStore(Protocol):
    """Incidents of a run, and the levels that a user accepted. Appending is idempotent."""

    def append_incident(self, incident: Incident) -> None:
        """Store an incident; one with the same `key` is replaced.

        An accepted incident stays accepted: a review that ran at the same time may not have seen the acceptance.
        """

    def incidents(self, run_id: str) -> tuple[Incident, ...]:
        """Return the run's incidents, open and closed, ordered by (opened_step, benchmark, subset)."""

    def append_acceptance(self, acceptance: Acceptance) -> None:
        """Store an acceptance, also in the log; one of the same run, step, benchmark and series is replaced."""

    def acceptances(self, run_id: str) -> tuple[Acceptance, ...]:
        """Return the run's acceptances ordered by (step, benchmark)."""


class SeriesStore(Protocol):
    """Changes of settings. Appending is idempotent."""

    def append_series_change(self, change: SeriesChange) -> None:
        """Store a change under (run, suite, benchmark, at); one that is stored already is replaced."""

    def series_changes(self, run_id: str) -> tuple[SeriesChange, ...]:
        """Return the run's changes of settings, and first settings, ordered by (at, suite, benchmark)."""


class JudgedRecordStore(RecordStore, IncidentStore, Protocol):
    """Records, and the losses that they showed."""


class CalibrationStore(Protocol):
    """Calibrations: what repeating an evaluation changes. Appending is idempotent."""

    def append_calibration(self, calibration: Calibration) -> None:
        """Store a calibration under its plan id; the same id again replaces it."""

    def calibrations(self) -> tuple[Calibration, ...]:
        """Return the calibrations of all runs, ordered by (finished_at, plan id)."""


class GapStore(Protocol):
    """Checkpoints that were not evaluated. Appending is idempotent."""

    def append_gap(self, gap: Gap) -> bool:
        """Store a gap under (run, step, code), also in the log; return False if it is stored already."""

    def gaps(self, run_id: str) -> tuple[Gap, ...]:
        """Return the run's gaps ordered by step."""


class AlertStore(Protocol):
    """The last alert of each cause. Appending is idempotent."""

    def append_alert(self, alert: Alert) -> None:
        """Store the newest state of an alert under its fingerprint; `alert_events` of it go to the log."""

    def open_alerts(self, run_id: str) -> tuple[Alert, ...]:
        """Return the run's alerts that are firing."""

    def alerts(self, run_id: str) -> tuple[Alert, ...]:
        """Return the newest state of each of the run's alerts, firing or resolved."""


class EventLog(Protocol):
    """What changed what people see of runs. Gaps, reports, acceptances and alerts are stored with their events."""

    def log(self, events: Iterable[RunEvent]) -> None:
        """Add events in their order; one whose key is known is left out.

        Numbers only grow, with gaps, and become visible in their order: nothing follows a visible one with a lower one.
        """

    def is_logged(self, key: str) -> bool:
        """Return whether an event with this key is in the log."""

    def events(self, run: str | None = None, *, after: int = 0, last: int = 0) -> tuple[RunEvent, ...]:
        """Return the events with a higher number than `after`, in the order of numbers; `last`: so many newest, 0: all.

        Those of a run are also those of its sub-folders, and of the run that it is a sub-folder of; None: of all runs.
        """


class MeasurementStore(JudgedRecordStore, CalibrationStore, Protocol):
    """Records, the losses that they showed, and calibrations."""


class RunHistory(MeasurementStore, SeriesStore, ReportStore, GapStore, AlertStore, TrainingHistory, EventLog, Protocol):
    """Everything about runs that computing and showing verdicts needs. A damaged document is left out alone."""

    def damaged(self) -> tuple[str, ...]:
        """Return what was left out so far because it is damaged, and where it is."""


class History(RunHistory, TextStore, Protocol):
    """All of these ports, implemented by one adapter."""
