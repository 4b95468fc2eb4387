"""Rows of results and verdicts: one for each benchmark of a record, each verdict and each finding. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from eval_jobs.types import BenchmarkFailure, EvalRecord, EvalResult, Outcome
from tracker.domain.records.losses import Drop, Measure
from tracker.domain.records.reason_text import reason_text
from tracker.domain.records.reasons import Reason
from tracker.domain.records.types import Comparison, Report, Screened, Verdict, VerdictWord


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredRow:
    """The result of one benchmark. Counts are None where they are unknown."""

    benchmark: str
    metric: str = ""
    fingerprint: str = ""
    higher_is_better: bool = True
    failure: str = ""
    """Code of the error; empty if there is a result."""
    score: float | None = None
    stderr: float | None = None
    coverage: float | None = None
    duration_s: float | None = None
    planned: int | None = None
    scored: int | None = None
    truncated: int | None = None
    unscored: int | None = None
    errors: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedRow:
    """A verdict or finding, and what decided it."""

    benchmark: str
    """Empty for all benchmarks of the suite together."""
    subset: str = ""
    measure: Measure = Measure.SCORE
    word: VerdictWord
    reason: str = ""
    score: float | None = None
    """Of a screened benchmark: the estimate of the whole score."""
    coverage: float = 0.0
    baseline: str = ""
    delta: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    p_worse: float | None = None
    p_better: float | None = None
    mde: float | None = None
    alpha_test: float = 0.0
    baseline_first: int | None = None
    baseline_last: int | None = None
    n_common: int | None = None
    n_lost: int | None = None
    n_gained: int | None = None
    lost_since: int | None = None
    missing: Reason | None = None
    """Why there is no result, if there is none."""
    screened: Screened | None = None


def measured_rows(record: EvalRecord) -> tuple[MeasuredRow, ...]:
    """Return what a record says of each benchmark; without samples, the counts are unknown."""
    return tuple(map(_measured, record.outcomes))


def judged_rows(report: Report) -> tuple[JudgedRow, ...]:
    """Return the verdicts of a report, then its findings."""
    return tuple(map(_judged, (*report.verdicts, *report.findings)))


def with_scores_of(measured: Iterable[MeasuredRow], verdicts: Iterable[Verdict]) -> tuple[MeasuredRow, ...]:
    """Return results whose samples are unknown with what the verdicts say of them."""
    known = {verdict.benchmark: verdict for verdict in verdicts if verdict.screened is None}
    found = []
    for one in measured:
        verdict = known.get(one.benchmark)
        if verdict is None or one.failure:
            found.append(one)
        else:
            found.append(replace(one, score=verdict.score, stderr=verdict.stderr, coverage=verdict.coverage))
    return tuple(found)


def _measured(outcome: Outcome) -> MeasuredRow:
    if isinstance(outcome, BenchmarkFailure):
        failure = outcome.code
        return MeasuredRow(benchmark=outcome.benchmark, fingerprint=outcome.fingerprint, failure=failure, coverage=0.0)
    known = MeasuredRow(
        benchmark=outcome.benchmark,
        metric=outcome.metric,
        fingerprint=outcome.fingerprint,
        higher_is_better=outcome.higher_is_better,
        duration_s=outcome.duration_s,
        input_tokens=outcome.input_tokens,
        output_tokens=outcome.output_tokens,
    )
    if not outcome.samples and outcome.aggregate is None:
        return known
    return _with_counts(known, outcome)


def _with_counts(known: MeasuredRow, result: EvalResult) -> MeasuredRow:
    # Imported here: scipy is slow to import, and reading rows does not need it.
    from tracker.domain.scores.summary import summarise

    summary = summarise(result)
    known = replace(known, score=summary.mean, stderr=summary.stderr, coverage=summary.coverage)
    if result.aggregate is not None and result.aggregate.samples is None:
        return known
    return replace(
        known,
        planned=summary.planned,
        scored=summary.scored,
        truncated=summary.truncated,
        unscored=summary.unscored,
        errors=summary.error,
    )


def _judged(verdict: Verdict) -> JudgedRow:
    known = JudgedRow(
        benchmark=verdict.benchmark,
        subset=verdict.subset,
        measure=verdict.measure,
        word=verdict.word,
        reason=reason_text(verdict),
        score=verdict.score,
        coverage=verdict.coverage,
        mde=verdict.mde,
        alpha_test=verdict.alpha_test,
        lost_since=verdict.lost_since,
        missing=verdict.reason if verdict.word is VerdictWord.MISSING else None,
        screened=verdict.screened,
    )
    known = _with_evidence(known, verdict.comparisons[:1])
    if verdict.open_drop is None:
        return known
    return _with_loss(known, verdict.open_drop)


def _with_loss(known: JudgedRow, drop: Drop) -> JudgedRow:
    """Return a row with the numbers of its open loss, which are the same everywhere; p is of the deciding test."""
    return replace(
        known,
        delta=drop.delta,
        ci_low=drop.ci_low,
        ci_high=drop.ci_high,
        baseline_first=drop.baseline_steps[0],
        baseline_last=drop.baseline_steps[-1],
        n_common=drop.n_common,
        n_lost=drop.n_lost,
        n_gained=drop.n_gained,
    )


def _with_evidence(known: JudgedRow, deciding: Iterable[Comparison]) -> JudgedRow:
    for one in deciding:
        return replace(
            known,
            baseline=one.baseline,
            delta=one.delta,
            ci_low=one.ci_low,
            ci_high=one.ci_high,
            p_worse=one.p_worse,
            p_better=one.p_better,
            baseline_first=min(one.baseline_steps, default=None),
            baseline_last=max(one.baseline_steps, default=None),
            n_common=one.n_common,
            n_lost=one.n_lost,
            n_gained=one.n_gained,
        )
    return known
