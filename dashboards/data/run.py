"""What a report is made from: everything that a history knows of one run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from eval_jobs.types import EvalPlan, EvalRecord
from tracker.domain.calibration.noise import repetitions_of
from tracker.domain.forgetting.types import RunLedger
from tracker.domain.overview.costs import RunCosts
from tracker.domain.records.alerts import Alert
from tracker.domain.records.branches import branches_of
from tracker.domain.records.calibration import Calibration, Repetition
from tracker.domain.records.tracking import Champion
from tracker.domain.records.types import Acceptance, CurvePoint, Gap, Incident, Phase, Report
from tracker.domain.scores.pairing import served_alike
from tracker.domain.scores.run_scores import RunScores
from tracker.domain.sweeps.board import Board


@dataclass(frozen=True, kw_only=True)
class Conclusions:
    """What was concluded about a run."""

    reports: tuple[Report, ...]
    gaps: tuple[Gap, ...] = ()
    incidents: tuple[Incident, ...] = ()
    acceptances: tuple[Acceptance, ...] = ()
    alerts: tuple[Alert, ...] = ()
    """Those that are firing."""
    champions: tuple[Champion, ...] = ()
    """The best checkpoints, the overall one first."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """What the trainer told of a run."""

    curves: tuple[CurvePoint, ...] = ()
    phases: tuple[Phase, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RunData:
    """One run."""

    run_id: str
    records: tuple[EvalRecord, ...]
    """One for each step and suite, ordered by step; results without their samples."""
    scores: RunScores
    conclusions: Conclusions
    training: Training = Training()
    texts: Mapping[str, EvalRecord] = field(default_factory=dict)
    """Records with their samples by plan id, as far as examples and counts need them."""
    costs: RunCosts | None = None
    """Of every evaluation of the run, also of those that another one has replaced; None: not known."""
    ledger: RunLedger | None = None
    """What was forgotten, with the texts of the lost samples that are shown."""
    repetitions: Mapping[str, Repetition] = field(default_factory=dict)
    """What repeating the evaluation of the newest checkpoint would change, by benchmark; none: not calibrated."""
    boards: tuple[Board, ...] = ()
    """What came of the newest turn of each sweep."""
    unfinished: int = 0
    """Evaluations that wait or run."""
    made_at: datetime


def newest_records(records: Iterable[EvalRecord]) -> tuple[EvalRecord, ...]:
    """Return one record for each step and suite, ordered by step: a step that was written again counts once.

    Checkpoints that training left behind when it went back do not count at all. Where a part of the samples was asked
    first, latency was measured with that: the record of everything gets it here.
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


def newest_repetitions(
    records: Iterable[EvalRecord], calibrations: Sequence[Calibration], *, min_effect: float
) -> Mapping[str, Repetition]:
    """Return what is known of the benchmarks of the newest record of each suite, by name.

    Args:
        records: ordered by step.
        calibrations: of all runs.
        min_effect: smallest effect that counts.
    """
    newest = {record.plan.suite.name: record for record in records}.values()
    found = (one for record in newest for one in repetitions_of(calibrations, record, min_effect=min_effect))
    return {one.benchmark: one for one in found}


def measurement_changes(records: Iterable[EvalRecord]) -> Mapping[str, tuple[int, ...]]:
    """Return the steps from which on a benchmark was measured otherwise than before, by its name: not comparable."""
    found: dict[str, list[int]] = {}
    last: dict[str, tuple[EvalPlan, str]] = {}
    for record in records:
        plan = record.plan
        for outcome in record.outcomes:
            old_plan, old = last.get(outcome.benchmark, (plan, outcome.fingerprint))
            # Comparing what is equal would take seconds for thousands of checkpoints.
            alike = plan.serve == old_plan.serve or served_alike(plan, old_plan)
            if outcome.fingerprint != old or not alike:
                found.setdefault(outcome.benchmark, []).append(plan.checkpoint.step)
            last[outcome.benchmark] = plan, outcome.fingerprint
    return {benchmark: tuple(steps) for benchmark, steps in found.items()}


# --- private


def _with_latencies(record: EvalRecord, before: EvalRecord | None) -> EvalRecord:
    if before is None or not _is_of_both_parts(record):
        return record
    is_same = before.plan.checkpoint.digest == record.plan.checkpoint.digest
    if is_same:
        return replace(record, probes=before.probes)
    return record


def _left_out(record: EvalRecord) -> int:
    """Return how many samples were not asked; of records that hold one another, the one with all has the least."""
    return sum(outcome.left_out for outcome in record.results)


def _is_of_both_parts(record: EvalRecord) -> bool:
    part = record.plan.suite.part
    return part is not None and part.is_rest
