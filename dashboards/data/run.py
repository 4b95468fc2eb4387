"""Data of the report of a run, from its history."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from eval_jobs.identity import series_fingerprints, series_serving_hash
from eval_jobs.types import EvalPlan, EvalRecord
from tracker.domain.calibration.noise import repetitions_of
from tracker.domain.forgetting.types import RunLedger
from tracker.domain.health.stored import RunProgress
from tracker.domain.log.events import RunEvent
from tracker.domain.overview.costs import RunCosts
from tracker.domain.records.alerts import Alert
from tracker.domain.records.branches import branches_of
from tracker.domain.records.calibration import Calibration, Repetition
from tracker.domain.records.losses import Acceptance, Incident
from tracker.domain.records.policy import Phase
from tracker.domain.records.reasons import Difference
from tracker.domain.records.tracking import Champion
from tracker.domain.records.training import Severity, TrainingIncident
from tracker.domain.records.types import CurvePoint, Gap, Report
from tracker.domain.scores.pairing import neutral_differences
from tracker.domain.scores.run_scores import RunScores
from tracker.domain.scores.series_changes import SeriesChange
from tracker.domain.sweeps.board import Board
from tracker.domain.tracking.disruptions import disruptions_of


@dataclass(frozen=True, kw_only=True)
class Conclusions:
    """Reports on a run, with gaps, incidents, accepted levels, alerts and best checkpoints."""

    reports: tuple[Report, ...]
    gaps: tuple[Gap, ...] = ()
    incidents: tuple[Incident, ...] = ()
    acceptances: tuple[Acceptance, ...] = ()
    alerts: tuple[Alert, ...] = ()
    """Open alerts."""
    champions: tuple[Champion, ...] = ()
    """The best checkpoints, the overall one first."""
    log: tuple[RunEvent, ...] = ()
    """The newest events."""
    changes: tuple[SeriesChange, ...] = ()
    """Changes of settings."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """Training curves, as logged by the trainer, and configured phases."""

    curves: tuple[CurvePoint, ...] = ()
    phases: tuple[Phase, ...] = ()
    incidents: tuple[TrainingIncident, ...] = ()
    """What went wrong in the training itself, in the order of time."""
    checkpoints: tuple[int, ...] = ()
    """Steps of all checkpoints, ascending."""
    progress: RunProgress | None = None
    """How the run stands by its logs; None: they were not read."""

    @property
    def marks(self) -> tuple[Phase, ...]:
        """Phases, what the curves show (restarts of the learning rate, changes of the batch size), and incidents."""
        shown = [Phase(name=one.what, from_step=one.step) for one in disruptions_of(self.curves, ())]
        return tuple(sorted((*self.phases, *shown, *self.incident_marks), key=lambda phase: phase.from_step))

    @property
    def incident_marks(self) -> tuple[Phase, ...]:
        """Where incidents that deserved an alert began."""
        marks = []
        for incident in self.incidents:
            step, severity = incident.cause.step, incident.cause.trouble.severity
            if step is not None and severity is Severity.ALERT:
                marks.append(
                    Phase(name=incident.cause.trouble.title or incident.name.replace("_", " "), from_step=step)
                )
        return tuple(marks)


@dataclass(frozen=True, kw_only=True)
class RunData:
    """Everything that the report of a run shows."""

    run_id: str
    records: tuple[EvalRecord, ...]
    """One for each step and suite, ordered by step; results without their samples."""
    scores: RunScores
    conclusions: Conclusions
    training: Training = Training()
    texts: Mapping[str, EvalRecord] = field(default_factory=dict)
    """Records by plan id, with the samples that the page shows or counts."""
    costs: RunCosts | None = None
    """Cost of every evaluation of the run, including replaced ones; None: unknown."""
    ledger: RunLedger | None = None
    """What was forgotten, with the texts of the lost samples that are shown."""
    repetitions: Mapping[str, Repetition] = field(default_factory=dict)
    """Run-to-run noise of the newest checkpoint's evaluation, by benchmark; missing: not calibrated."""
    boards: tuple[Board, ...] = ()
    """Results of the newest run of each sweep."""
    unfinished: int = 0
    """Number of pending and running evaluations."""
    made_at: datetime


def newest_records(records: Iterable[EvalRecord]) -> tuple[EvalRecord, ...]:
    """Return the newest record for each step and suite, ordered by step.

    Checkpoints that a training restart discarded are omitted. A record of known results, and one of the samples that
    a screening left out, has the latency of the earlier record.
    """
    ordered = sorted(
        records,
        key=lambda r: (r.plan.checkpoint.step, r.plan.checkpoint.ready_at, r.finished_at, -_left_out(r)),
    )
    branches = branches_of(r.plan.checkpoint for r in ordered)
    ordered = [r for r in ordered if branches.left_by(r.plan.checkpoint) is None]
    newest: dict[tuple[int, str], EvalRecord] = {}
    for record in ordered:
        key = record.plan.checkpoint.step, record.plan.suite.name
        newest[key] = _with_latencies(record, newest.get(key))
    return tuple(newest.values())


def only(record: EvalRecord, benchmarks: Collection[str]) -> EvalRecord:
    """Return the record with the results of some benchmarks."""
    return replace(record, outcomes=tuple(o for o in record.outcomes if o.benchmark in benchmarks))


def newest_repetitions(
    records: Iterable[EvalRecord], calibrations: Sequence[Calibration], *, min_effect: float
) -> Mapping[str, Repetition]:
    """Return the run-to-run noise of the benchmarks in the newest record of each suite, by name.

    `records` are ordered by step; `min_effect` is the smallest effect that counts.
    """
    newest = {record.plan.suite.name: record for record in records}.values()
    found = (one for record in newest for one in repetitions_of(calibrations, record, min_effect=min_effect))
    return {one.benchmark: one for one in found}


def measurement_changes(records: Iterable[EvalRecord]) -> Mapping[str, tuple[int, ...]]:
    """Return, by benchmark, the steps from which it was measured differently: not comparable with earlier steps."""
    found: dict[str, list[int]] = {}
    last: dict[str, tuple[str, str]] = {}
    for record in records:
        plan, serving = record.plan, series_serving_hash(record.plan.serve)
        for outcome, fingerprint in zip(record.outcomes, series_fingerprints(plan, record.outcomes), strict=True):
            if last.get(outcome.benchmark, (fingerprint, serving)) != (fingerprint, serving):
                found.setdefault(outcome.benchmark, []).append(plan.checkpoint.step)
            last[outcome.benchmark] = fingerprint, serving
    return {benchmark: tuple(steps) for benchmark, steps in found.items()}


def neutral_changes(records: Iterable[EvalRecord]) -> Mapping[int, tuple[Difference, ...]]:
    """Return, by step, the settings that changed there and cannot change a score; imported results have none."""
    found: dict[int, tuple[Difference, ...]] = {}
    last: dict[str, EvalPlan] = {}
    for record in records:
        plan = record.plan
        before = last.get(plan.suite.name, plan)
        same = plan.serve == before.serve and plan.suite == before.suite  # almost always, and faster
        differences = () if same else neutral_differences(plan, before)
        if differences:
            found[plan.checkpoint.step] = (*found.get(plan.checkpoint.step, ()), *differences)
        last[plan.suite.name] = plan
    return found


def _with_latencies(record: EvalRecord, before: EvalRecord | None) -> EvalRecord:
    if before and not record.plan.loads and before.plan.checkpoint.digest == record.plan.checkpoint.digest:
        return replace(record, probes=before.probes)
    return record


def _left_out(record: EvalRecord) -> int:
    """Return the number of samples left out: smaller for the record of all samples than for that of a part."""
    return sum(outcome.left_out for outcome in record.results)
