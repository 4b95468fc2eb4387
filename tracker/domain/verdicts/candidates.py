"""Candidates from a record and the scores of its run: which checkpoints count, and the levels of tests. Pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from eval_jobs.types import EvalRecord, EvalResult
from tracker.domain.calibration.noise import decoding_variance, repetition_of
from tracker.domain.records.calibration import Repetition
from tracker.domain.records.losses import Acceptance, Incident, Measure
from tracker.domain.records.policy import Phase, Policy
from tracker.domain.regression.budget import BEHAVIOUR_SHARE, DEFAULT, PLAIN, SCORE_SHARE, SUITE_SHARE, Design
from tracker.domain.regression.detector import ErrorBudget, Track, jitter_of
from tracker.domain.regression.jitter import MIN_HISTORY, WINDOW, Jitter
from tracker.domain.regression.screened import ScreenedScores, screened_scores
from tracker.domain.scores.matrix import BoolArray, IntArray, ScoreMatrix, inserted, values_at
from tracker.domain.scores.run_scores import RunScores
from tracker.domain.scores.sample_columns import Questions
from tracker.domain.scores.series import BenchmarkSeries, SeriesKey, series_key, series_keys
from tracker.domain.verdicts.context import JudgingContext
from tracker.domain.verdicts.hypothesis import Hypothesis, Subject, Thresholds
from tracker.domain.verdicts.losses.incidents import counting, open_of

_JITTER_CHECKPOINTS = 2 * WINDOW
"""Checkpoints per series: enough for `WINDOW` second differences if at most half of them lack answers."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """One measure of one benchmark at the checkpoint to evaluate."""

    subject: Subject
    series: BenchmarkSeries
    matrix: ScoreMatrix
    """Matrix of the series; the pinned model, if there is one, is an extra row at its end."""
    track: Track
    steps: tuple[int, ...]
    """Step of every row of `matrix`."""
    open_incident: Incident | None
    newest: bool
    """Whether no later checkpoint of this branch of the run is known, nor newer settings: it opens incidents."""
    is_last_of_series: bool
    """Whether none with these settings is known: it changes and ends their incidents."""
    repetition: Repetition | None = None
    """Noise of the score by repeated evaluation alone; None: unknown."""

    @property
    def left_out(self) -> int:
        """Samples of the benchmark not evaluated at the candidate; above 0 if it was screened."""
        return int(self.series.left_out[self.row])

    @property
    def asked(self) -> int:
        """Samples that were evaluated at the candidate."""
        return int(self.series.asked[self.row].sample_ids.size)

    @property
    def row(self) -> int:
        """Row of the candidate."""
        return int(self.track.rows[-1])


def candidates_of(context: JudgingContext, measure: Measure) -> Mapping[str, Candidate]:
    """Return by benchmark the results with enough scored samples and with values of `measure`."""
    found: dict[str, Candidate] = {}
    for outcome in context.record.outcomes:
        if isinstance(outcome, EvalResult):
            series = context.scores.series.get(series_key(context.record.plan, outcome))
            candidate = None if series is None else _candidate(context, series, measure)
            if candidate is not None:
                found[outcome.benchmark] = candidate
    return found


def hypothesis_of(context: JudgingContext, candidate: Candidate, jitter: Jitter) -> Hypothesis:
    """Return the hypothesis of a benchmark."""
    return Hypothesis(
        subject=candidate.subject,
        matrix=candidate.matrix,
        track=candidate.track,
        steps=candidate.steps,
        jitter=jitter,
        level=_level(context, candidate),
        thresholds=thresholds_of(context.policy),
        digest=context.digest,
    )


def on_whole_checkpoints(candidate: Candidate) -> Candidate:
    """Return a fully evaluated candidate, compared only with fully evaluated checkpoints."""
    rows = _whole(candidate.series, candidate.track.rows)
    if rows.size == candidate.track.rows.size and isinstance(candidate.track.scores, ScoreMatrix):
        return candidate
    left = candidate.track.rows.size - rows.size
    is_kept = np.isin(candidate.track.rows, rows)
    noise_from, noise_to = candidate.track.noise_from, candidate.track.noise_to
    track = replace(
        candidate.track,
        scores=candidate.matrix,
        rows=rows,
        noise_from=int(is_kept[:noise_from].sum()),
        noise_to=None if noise_to is None else int(is_kept[:noise_to].sum()),
        dropped=candidate.track.dropped + left,
    )
    return replace(candidate, track=track)


def chance_of(context: JudgingContext, candidate: Candidate) -> float | None:
    """Return the score of guessing, oriented so that higher is better; None if unknown."""
    chance = context.policy.chance.get(candidate.subject.benchmark)
    if chance is None or candidate.series.higher_is_better:
        return chance
    return 1.0 - chance


def known_jitter(
    scores: RunScores, min_coverage: float, incidents: Iterable[Incident] = ()
) -> Mapping[SeriesKey, Jitter]:
    """Return the jitter of every series of a run that has enough checkpoints to estimate it, before an open loss."""
    lost = {(e.suite, e.benchmark): e.onset_step for e in incidents if e.closed_step is None and not e.subset}
    tracks: dict[SeriesKey, Track] = {}
    for key, series in scores.series.items():
        rows, onset = series.whole_rows(min_coverage), lost.get((key.suite, key.benchmark))
        healthy = [row for row in rows.tolist() if onset is None or series.steps[row] < onset]
        tracks[key] = Track(scores=series.matrices[Measure.SCORE], rows=rows[: len(healthy)])
    jitters = dict(zip(tracks, jitter_of(tuple(tracks.values())), strict=True))
    return {key: jitters[key] for key, track in tracks.items() if track.rows.size - 2 >= MIN_HISTORY}


def steps_for_jitter(records: Iterable[EvalRecord]) -> frozenset[int]:
    """Return the steps whose scores `known_jitter` needs for a run with these records, which need no samples.

    Only the newest fully evaluated checkpoints of each series count.
    """
    whole: dict[SeriesKey, set[int]] = {}
    for record in records:
        results = [result for result in record.results if not result.left_out]
        for key in series_keys(record.plan, results):
            whole.setdefault(key, set()).add(record.plan.checkpoint.step)
    return frozenset[int]().union(*(sorted(steps)[-_JITTER_CHECKPOINTS:] for steps in whole.values()))


def thresholds_of(policy: Policy) -> Thresholds:
    """Return the sizes of changes that matter for a whole benchmark."""
    return Thresholds(min_effect=policy.min_effect, equivalence_margin=policy.equivalence_margin)


def alpha_of_scores(context: JudgingContext, series: BenchmarkSeries) -> float:
    """Return the run's alpha for scores of a benchmark; half of it if there are subsets, which get the other half."""
    alpha = alpha_of_benchmarks(context)
    if has_subsets(series):
        return alpha / 2
    return alpha


def alpha_of_benchmarks(context: JudgingContext) -> float:
    """Return the run's alpha for the scores of single benchmarks."""
    alpha = context.policy.alpha * SCORE_SHARE
    if context.alpha_of_suite:
        return alpha * (1 - SUITE_SHARE)
    return alpha


def budget_of(context: JudgingContext, alpha: float, design: Design = DEFAULT) -> ErrorBudget:
    """Return the levels of tests that share `alpha` over the run."""
    planned, benchmarks = context.policy.planned_checkpoints, context.benchmarks
    return ErrorBudget(alpha=alpha, planned=planned, benchmarks=benchmarks, design=design)


def has_subsets(series: BenchmarkSeries) -> bool:
    """Return whether the samples are in more than one subset."""
    return len(series.samples.grouping.names) > 1


def phase_start(phases: Iterable[Phase], steps: Sequence[int]) -> int:
    """Return how many of `steps`, ascending, are of earlier training phases than the last one."""
    start = max((p.from_step for p in phases if steps and p.from_step < steps[-1]), default=None)
    # Checkpoint N contains the updates up to N: one at the start of a phase is of the phase before.
    if start is None:
        return 0
    return sum(step <= start for step in steps)


def _candidate(context: JudgingContext, series: BenchmarkSeries, measure: Measure) -> Candidate | None:
    rows = _rows_so_far(context, series, measure)
    if not rows.size or series.steps[int(rows[-1])] != context.step:
        return None
    subject = Subject(suite=series.key.suite, benchmark=series.key.benchmark, measure=measure)
    open_incident = open_of(context.incidents_of(subject), series.steps)
    accepted = context.acceptances_of(series.key.benchmark)
    counts = _counts(context, subject, [series.steps[row] for row in rows], is_lost=open_incident is not None)
    matrix, steps = _with_pinned(context, series, measure, accepted)
    counted, scores = _scores(series, measure, matrix, rows[np.array(counts, dtype=bool)])
    repetition = None
    if measure is Measure.SCORE:
        calibrations, min_effect = context.run_context.calibrations, context.policy.min_effect
        repetition = repetition_of(calibrations, context.record, series.key.benchmark, min_effect=min_effect)
    counted_steps = [steps[row] for row in counted]
    return Candidate(
        subject=subject,
        series=series,
        matrix=matrix,
        track=Track(
            scores=scores,
            rows=counted,
            noise_from=phase_start(context.policy.phases, counted_steps),
            noise_to=_noise_to(context, open_incident, counted_steps),
            pinned_row=len(series.steps) if len(steps) > len(series.steps) else None,
            dropped=len(_earlier_steps(context, series)) - (counted.size - 1),
            decoding=decoding_variance(repetition),
        ),
        steps=steps,
        open_incident=open_incident,
        newest=_is_newest(context, series),
        is_last_of_series=_is_last(context, [series]),
        repetition=repetition,
    )


def _counts(context: JudgingContext, subject: Subject, steps: Sequence[int], *, is_lost: bool) -> list[bool]:
    """Return for each of `steps` whether it counts in tests of `subject`; `is_lost`: whether it has an open loss."""
    accepted = context.acceptances_of(subject.benchmark)
    known = (*context.incidents_of(subject), *context.incidents_of(context.suite))
    over = frozenset[int]() if is_lost else context.dips.over  # an open loss is no dip
    counts = counting(steps, known, accepted)
    if not over:
        return list(counts)
    return [is_counted and step not in over for step, is_counted in zip(steps, counts, strict=True)]


def _noise_to(context: JudgingContext, open_incident: Incident | None, steps: Sequence[int]) -> int | None:
    """Return how many of `steps` are before an open loss, of the benchmark or of all together, and an expected dip."""
    ends = [] if open_incident is None else [open_incident.onset_step]
    ends += (e.onset_step for e in context.incidents_of(context.suite) if e.closed_step is None)
    if context.dips.since_step is not None:
        ends.append(context.dips.since_step)
    if not ends:
        return None
    return sum(step < min(ends) for step in steps)


def _rows_so_far(context: JudgingContext, series: BenchmarkSeries, measure: Measure) -> IntArray:
    """Return the rows up to the candidate that have values of this measure for enough samples."""
    matrix, rows = series.matrices[measure], series.usable_rows(context.policy.min_coverage)
    so_far = rows[rows < bisect_right(series.steps, context.step)]
    return so_far[matrix.missing[so_far] < matrix.n_samples]


def _with_pinned(
    context: JudgingContext, series: BenchmarkSeries, measure: Measure, accepted: Iterable[Acceptance]
) -> tuple[ScoreMatrix, tuple[int, ...]]:
    """Return the scores and the step of every row; the last row is the pinned model if one counts."""
    matrix, steps, pinned = series.matrices[measure], series.steps, context.policy.pinned
    # After an accepted level the pinned model no longer counts, whatever it scores.
    is_accepted = any(a.step <= context.step for a in accepted)
    values = None if is_accepted else _pinned_values(context, series, measure)
    if pinned is None or values is None:
        return matrix, steps
    return inserted(matrix, len(steps), values), (*steps, pinned.step)


def _scores(
    series: BenchmarkSeries, measure: Measure, matrix: ScoreMatrix, rows: IntArray
) -> tuple[IntArray, ScoreMatrix | ScreenedScores]:
    """Return the rows that count and their scores; the candidate is the last row.

    If some were screened, the score is tested on all evaluated samples, other measures on full checkpoints.
    """
    if series.is_whole[rows].all():
        return rows, matrix
    if measure is Measure.SCORE:
        index = {sample_id: at for at, sample_id in enumerate(series.samples.sample_ids.tolist())}
        masks = {id(q): _mask(q, index) for q in series.asked}
        asked = [masks[id(q)] for q in series.asked]
        planned = [plan.suite.part is None for plan in series.plans]
        if len(matrix.sums) > len(asked):  # the pinned model
            asked.append(values_at(matrix, np.array([len(asked)]))[0] >= -np.inf)
            planned.append(True)
        found = screened_scores(matrix, rows, asked, np.array(planned, dtype=bool))
        if found is not None:
            return rows, found
    return np.append(_whole(series, rows[:-1]), rows[-1]), matrix


def _mask(asked: Questions, index: Mapping[str, int]) -> BoolArray:
    mask = np.zeros(len(index), dtype=bool)
    mask[[index[sample_id] for sample_id in asked.sample_ids.tolist()]] = True
    return mask


def _whole(series: BenchmarkSeries, rows: IntArray) -> IntArray:
    return rows[series.is_whole[rows]]


def _is_newest(context: JudgingContext, series: BenchmarkSeries) -> bool:
    """Return whether no later checkpoint can open or end an incident, and the settings were not changed since."""
    name = series.key.benchmark
    settings = context.newest_settings(name)
    if settings is None:
        return _is_last(context, context.scores.of(name, series.key.suite))
    return settings == context.series.get(name) and _is_last(context, [series])


def _is_last(context: JudgingContext, same: Iterable[BenchmarkSeries]) -> bool:
    """Return whether the candidate is on the newest branch, and is the last checkpoint of all in `same`."""
    if context.is_left:
        return False
    for one in same:
        # A screened one cannot: the whole benchmark of this checkpoint may have been evaluated because of it.
        rows = one.whole_rows(context.policy.min_coverage)
        if rows.size and one.steps[int(rows[-1])] > context.step:
            return False
    return True


def _earlier_steps(context: JudgingContext, series: BenchmarkSeries) -> set[int]:
    """Return the steps before the candidate with a usable result of this benchmark, whatever the settings."""
    earlier: set[int] = set()
    for one in context.scores.of(series.key.benchmark, series.key.suite):
        rows = one.usable_rows(context.policy.min_coverage)
        before = rows[rows < bisect_left(one.steps, context.step)]
        earlier.update(one.steps[row] for row in before.tolist())
    return earlier


def _pinned_values(context: JudgingContext, series: BenchmarkSeries, measure: Measure) -> np.ndarray | None:
    pinned, scores = context.policy.pinned, context.run_context.pinned
    if pinned is None or scores is None:
        return None
    if (scores.run_id, pinned.step) == (context.scores.run_id, context.step):
        return None  # a checkpoint is not compared with itself
    other = scores.series.get(series.key)
    row = None if other is None else other.row_of(pinned.step)
    if other is None or row is None:
        return None
    values = dict(zip(other.sample_ids, values_at(other.matrices[measure], np.array([row]))[0].tolist(), strict=True))
    return np.array([values.get(sample_id, np.nan) for sample_id in series.sample_ids])


def _level(context: JudgingContext, candidate: Candidate) -> ErrorBudget:
    if candidate.subject.measure is Measure.SCORE:
        level = budget_of(context, alpha_of_scores(context, candidate.series))
    else:
        level = budget_of(context, context.policy.alpha * BEHAVIOUR_SHARE, PLAIN)
    return replace(level, pinned=context.policy.pinned is not None)
