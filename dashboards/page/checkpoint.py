"""Reads from the history what the report of one checkpoint needs. `dashboards.page.run` writes the page."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from dashboards.data.checkpoint import CheckpointData, best_comparison, own_record, path_to
from dashboards.data.run import Conclusions, RunData, Training, newest_repetitions, only
from eval_jobs.ports import QueueStatus
from eval_jobs.types import EvalRecord
from tracker.app.steps.comparing import noise_of_run, whole_record_of
from tracker.domain.best.choice import champions_of
from tracker.domain.compare.view import ComparisonView, RunNoise, compare_what_can_be
from tracker.domain.records.branches import branches_of
from tracker.domain.records.losses import Measure
from tracker.domain.records.policy import Policy
from tracker.domain.records.types import Report
from tracker.domain.scores.run_scores import RunScores
from tracker.domain.verdicts.rewind import scores_of_newest
from tracker.ports import RunHistory


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Data sources of a report."""

    history: RunHistory
    queue: QueueStatus
    policy: Policy
    pinned: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """Steps of checkpoints that are pinned, by run; they may not be evaluated yet."""

    def saved_steps(self, run_id: str, records: Sequence[EvalRecord]) -> tuple[int, ...]:
        """Return the steps of the checkpoints of a run with these records, ascending."""
        evaluated = {record.plan.checkpoint.step for record in records}
        return tuple(sorted(evaluated | self.pinned.get(run_id, frozenset())))


def collect_checkpoint(
    report: Report, sources: Sources, *, now: datetime, noise: RunNoise | None = None
) -> CheckpointData:
    """Read the data of one checkpoint; samples only of it, of the previous one, and of the best ones before it.

    Raises:
        StoreError: the evaluated record or its samples no longer exist.
    """
    history = sources.history
    whole, known = whole_record_of(report, history), history.records(report.run_id)
    record, path = own_record(whole, known), path_to(whole, known)
    before = path[-1] if path else None
    judged = history.report(report.plan_id) or report
    left_by = branches_of(r.plan.checkpoint for r in known).left_by(whole.plan.checkpoint)
    return CheckpointData(
        own=replace(_own(record, judged, whole, sources, now), training=_training(known, sources)),
        before=before,
        means=history.outlines(report.run_id),
        views=tuple(_views(judged, whole, path, sources, noise)),
        titles=_titles(whole, known, sources),
        left_for=None if left_by is None else left_by.step,
    )


def _training(known: Sequence[EvalRecord], sources: Sources) -> Training:
    run_id = known[0].plan.checkpoint.run_id if known else ""
    return Training(
        incidents=sources.history.training_incidents(run_id),
        checkpoints=sources.saved_steps(run_id, known),
    )


def _own(record: EvalRecord, report: Report, whole: EvalRecord, sources: Sources, now: datetime) -> RunData:
    calibrations, min_effect = sources.history.calibrations(), sources.policy.min_effect
    return RunData(
        run_id=report.run_id,
        records=(record,),
        scores=RunScores(run_id=report.run_id, series={}),
        conclusions=Conclusions(
            reports=(report,), incidents=report.incidents, changes=sources.history.series_changes(report.run_id)
        ),
        texts={record.plan.id: whole},
        repetitions=newest_repetitions((record,), calibrations, min_effect=min_effect),
        made_at=now,
    )


def _views(
    report: Report, whole: EvalRecord, path: Sequence[EvalRecord], sources: Sources, known_noise: RunNoise | None
) -> Iterator[ComparisonView]:
    """Yield the comparison with the previous checkpoint, then with each checkpoint that is best in a benchmark."""
    if not path:
        return
    noise = known_noise or noise_of_run(report.run_id, sources.history, sources.policy)
    for before, benchmarks in _wanted(report, whole, path):
        earlier = sources.history.record(before.plan.id, benchmarks)
        if earlier is not None:  # it may have been removed since it was listed
            left, right = only(earlier, benchmarks), only(whole, benchmarks)
            yield compare_what_can_be(left, right, sources.policy, noise, examples=None)


def _wanted(
    report: Report, whole: EvalRecord, path: Sequence[EvalRecord]
) -> Iterator[tuple[EvalRecord, Sequence[str]]]:
    """Yield the previous checkpoint with all benchmarks, then others with the benchmarks that they are best in."""
    *others, last = path
    yield last, [outcome.benchmark for outcome in whole.outcomes]
    by_step = {record.plan.checkpoint.step: record for record in others}
    wanted: dict[int, list[str]] = {}
    for verdict in report.verdicts:
        best = best_comparison(verdict, report.step)
        if best is not None and best.baseline_steps[-1] in by_step:
            wanted.setdefault(best.baseline_steps[-1], []).append(verdict.benchmark)
    for step, benchmarks in wanted.items():
        yield by_step[step], benchmarks


def _titles(whole: EvalRecord, known: Sequence[EvalRecord], sources: Sources) -> tuple[str, ...]:
    checkpoint = whole.plan.checkpoint
    branches = branches_of(r.plan.checkpoint for r in known)
    scores = scores_of_newest(sources.history.scores(checkpoint.run_id, (Measure.SCORE,)), branches)
    incidents = sources.history.incidents(checkpoint.run_id)
    champions = champions_of(scores, incidents, min_coverage=sources.policy.min_coverage)
    own = checkpoint.step, checkpoint.digest
    return tuple(c.alias for c in champions if (c.checkpoint.step, c.checkpoint.digest) == own)
