"""Rewinds: each checkpoint is compared with its own branch, and incidents end or reopen. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from eval_jobs.types import Checkpoint, EvalRecord
from tracker.domain.records.branches import Branches, branches_of
from tracker.domain.records.imported import stands_for_import
from tracker.domain.records.losses import Closing, Incident
from tracker.domain.records.policy import Policy
from tracker.domain.scores.run_scores import RunScores, with_record
from tracker.domain.scores.sample_columns import columns_of
from tracker.domain.scores.series import BenchmarkSeries, less_rows, series_key, series_without_step
from tracker.domain.verdicts.context import JudgingContext, RunContext
from tracker.domain.verdicts.losses.incidents import reopened


def branches_known(record: EvalRecord, run_context: RunContext) -> Branches:
    """Return the branches of the run, as far as records show them."""
    return branches_of((*(r.plan.checkpoint for r in run_context.records), record.plan.checkpoint))


def context_of(record: EvalRecord, scores: RunScores, run_context: RunContext, policy: Policy) -> JudgingContext:
    """Return the inputs for the verdicts on `record`, without checkpoints of other branches."""
    own = record.plan.checkpoint
    # Imported results are in no trainer's folder: no rewind leaves them behind, whatever the steps of the others.
    branches = Branches() if stands_for_import(own) else branches_known(record, run_context)
    if branches.rewrites:
        scores = _scores_where(scores, branches, lambda other: branches.sees(own, other))
        run_context = replace(
            run_context,
            records=tuple(r for r in run_context.records if branches.sees(own, r.plan.checkpoint)),
            incidents=tuple(_seen_by(own, run_context, branches)),
        )
    return JudgingContext(
        record=record,
        scores=_with_own(scores, record),
        run_context=run_context,
        policy=policy,
        is_left=branches.left_by(own) is not None,
    )


def rewound(run_context: RunContext, branches: Branches) -> tuple[Incident, ...]:
    """Return the incidents that end because training went back to before them, and those whose recovery it undid."""
    if not branches.rewrites:
        return ()
    return tuple(after for before, after, _ in _fates(run_context, branches) if after != before)


def scores_of_newest(scores: RunScores, branches: Branches) -> RunScores:
    """Return the scores of the newest branch, without the checkpoints that a rewind left behind."""
    return _scores_where(scores, branches, lambda other: branches.left_by(other) is None)


def left_behind(record: EvalRecord, run_context: RunContext) -> tuple[Checkpoint, ...]:
    """Return the checkpoints of the run that are not on its newest branch."""
    branches = branches_known(record, run_context)
    if not branches.rewrites:
        return ()
    known = (one.plan.checkpoint for one in (*run_context.records, record))
    return tuple({(c.step, c.digest): c for c in known if branches.left_by(c) is not None}.values())


_SHOWN_BY_CHECKPOINT = frozenset({Closing.RECOVERED, Closing.TRANSIENT, Closing.EXPLAINED, Closing.REMEASURED})

_End = tuple[str, Checkpoint | None]
"""Digest of a checkpoint, and the checkpoint that left it behind; None: it is on the newest branch."""


def _fates(run_context: RunContext, branches: Branches) -> Iterator[tuple[Incident, Incident, bool]]:
    """Yield each incident as stored, as on the newest branch, and whether what raised the alarm was left behind."""
    ends: dict[int, list[_End]] = {}
    for checkpoint in (r.plan.checkpoint for r in run_context.records):
        ends.setdefault(checkpoint.step, []).append((checkpoint.digest, branches.left_by(checkpoint)))
    for incident in run_context.incidents:
        opener = _end(ends.get(incident.opened_step, ()), incident.opened_digest)
        yield incident, _after(incident, opener, ends), opener is not None


def _after(incident: Incident, opener: Checkpoint | None, ends: Mapping[int, Sequence[_End]]) -> Incident:
    """Return an incident as on the newest branch; `opener` left the checkpoint that raised the alarm behind."""
    if opener is not None:
        if incident.closed_step is not None:
            return incident
        return replace(incident, closed_step=opener.step, closed_by=Closing.SUPERSEDED)
    if incident.closed_by not in _SHOWN_BY_CHECKPOINT or not incident.closed_digest:
        return incident
    if _end(ends.get(incident.closed_step or 0, ()), incident.closed_digest) is None:
        return incident
    return reopened(incident)


def _end(known: Iterable[_End], digest: str) -> Checkpoint | None:
    """Return what left behind the checkpoint with `digest`; None if one with these weights was not left behind."""
    ends = [end for own, end in known if own == digest]
    if ends and all(end is not None for end in ends):
        return ends[0]
    return None


def _seen_by(own: Checkpoint, run_context: RunContext, branches: Branches) -> Iterator[Incident]:
    """Yield the incidents of the candidate's branch; for a candidate that was left behind, all as stored."""
    is_own_left = branches.left_by(own) is not None
    for before, after, is_left in _fates(run_context, branches):
        if is_own_left:
            yield before
        elif not is_left:
            yield after


def _with_own(scores: RunScores, record: EvalRecord) -> RunScores:
    """Return the scores with the record's own at its step if they are of another checkpoint of that step."""
    own, series, lacking = record.plan.checkpoint, dict(scores.series), []
    for result in record.results:
        known = series.get(series_key(record.plan, result))
        if not result.samples or _holds(known, own):
            continue
        if known is not None:
            series[known.key] = series_without_step(known, own.step)
        lacking.append(result)
    if not lacking:
        return scores
    columns = {result.benchmark: columns_of(result.samples) for result in lacking}
    return with_record(replace(scores, series=series), replace(record, outcomes=tuple(lacking)), columns)


def _holds(series: BenchmarkSeries | None, checkpoint: Checkpoint) -> bool:
    row = None if series is None else series.row_of(checkpoint.step)
    return series is not None and row is not None and series.plans[row].checkpoint.digest == checkpoint.digest


def _scores_where(scores: RunScores, branches: Branches, is_kept: Callable[[Checkpoint], bool]) -> RunScores:
    if not branches.rewrites:
        return scores
    kept = {}
    for key, series in scores.series.items():
        gone = [row for row, plan in enumerate(series.plans) if not is_kept(plan.checkpoint)]
        if len(gone) < len(series.plans):
            kept[key] = less_rows(series, gone) if gone else series
    return replace(scores, series=kept)
