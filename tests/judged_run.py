"""The made-up run with all that a judge can say: findings, losses that end, changed latencies, every word.

`judged_run()` is `forgetting_run()` with a fourth benchmark `trivia` that was lost and is back, a loss in one of its
subsets, noise out of range, answers of `sums` that got longer, losses that were accepted, and latency verdicts with a
reference.
"""

from dataclasses import replace
from datetime import UTC, datetime

from tests.records import RUN, RecordedRun, forgetting_run
from tracker.domain.records.calibration import BenchmarkNoise, NoiseAspect, NoiseOfRun, OutOfRange
from tracker.domain.records.losses import Acceptance, Closing, Incident, Measure
from tracker.domain.records.reasons import AgainstReference, Compared, Fall, Together, TooEarly
from tracker.domain.records.types import (
    Baseline,
    Comparison,
    LatencyMethod,
    LatencyMetric,
    LatencyVerdict,
    Report,
    Verdict,
    VerdictWord,
)

NOISE = NoiseOfRun(
    benchmarks=(
        BenchmarkNoise(benchmark="trivia", jitter=0.012, checkpoints=42),
        BenchmarkNoise(benchmark="facts", jitter=0.003, checkpoints=9),
    ),
    persistence=0.65,
    tails=1.1,
    differences=80,
    out_of_range=(OutOfRange(aspect=NoiseAspect.PERSISTENCE, value=0.65, limit=0.6),),
)
PEAK = tuple(range(410, 501, 10))
_WORDS = {
    100: VerdictWord.NOT_LEARNED,
    200: VerdictWord.RISING,
    300: VerdictWord.EQUIVALENT,
    400: VerdictWord.SUSPECT,
    500: VerdictWord.REGRESSED,
    600: VerdictWord.FORGOTTEN,
    700: VerdictWord.INCOMPARABLE,
    800: VerdictWord.MISSING,
    900: VerdictWord.BELOW_GUESSING,
    1000: VerdictWord.RECOVERED,
}


_BACK = 900
"""Step after a broken checkpoint."""


def judged_run(*, subset: str = "history", reason: str = "the data mix changed on purpose") -> RecordedRun:
    """Return the run; `subset` is the name of the one that is lost, `reason` why a level was accepted."""
    run = forgetting_run()
    return replace(
        run,
        reports=tuple(_told(report, subset) for report in run.reports),
        incidents=(
            _incident("facts", 700, 700, forgotten=True),
            replace(_incident("sums", 800, 700), measure=Measure.OUTPUT_LENGTH),
            replace(_incident("trivia", 700, 600), subset=subset),
            replace(_incident("sums", 700, 700), closed_step=800, closed_by=Closing.ACCEPTED),
            replace(_incident("trivia", 500, 400), closed_step=1000, closed_by=Closing.RECOVERED, last_step=800),
        ),
        acceptances=(_accepted("sums", 800, 700, reason), _accepted("reversal", 300, 300, reason)),
    )


# --- private


def _incident(benchmark: str, opened: int, onset: int, *, forgotten: bool = False) -> Incident:
    return Incident(
        run_id=RUN,
        suite="skills",
        benchmark=benchmark,
        opened_step=opened,
        opened_digest="of it",
        onset_step=onset,
        forgotten=forgotten,
    )


def _accepted(benchmark: str, step: int, from_step: int, reason: str) -> Acceptance:
    at = datetime(2026, 3, 15, 8, 0, tzinfo=UTC)
    return Acceptance(run_id=RUN, step=step, benchmark=benchmark, from_step=from_step, reason=reason, accepted_at=at)


def _told(report: Report, subset: str) -> Report:
    found = _findings(report.step, subset) if report.step >= 800 else ()
    if report.step == _BACK:
        found = (*found, _transient())
    return replace(
        report,
        verdicts=(*report.verdicts, _trivia(report.step)),
        findings=found,
        latency=_latency(report.step),
        noise=NOISE,
    )


def _comparison(step: int, delta: float) -> Comparison:
    return Comparison(
        baseline=Baseline.PEAK,
        baseline_steps=PEAK,
        pooled_steps=(step - 300, step - 200, step - 100, step),
        n_common=200,
        common_fraction=1.0,
        delta=delta,
        stderr=0.012,
        ci_low=delta - 0.024,
        ci_high=delta + 0.024,
        p_worse=3.1e-7 if delta < 0 else 0.9,
        p_better=0.9 if delta < 0 else 0.3,
        p_worse_items=4.4e-9 if delta < 0 else 0.8,
        jitter=0.0062,
        selected_from=12,
        n_lost=21,
        n_gained=3,
        method="pooled-t",
    )


def _trivia(step: int) -> Verdict:
    word = _WORDS[step]
    unscored = word in (VerdictWord.MISSING, VerdictWord.NOT_LEARNED, VerdictWord.INCOMPARABLE)
    return Verdict(
        benchmark="trivia",
        word=word,
        reason=TooEarly() if unscored else Compared(before=0.614, now=0.61, margin=0.01, in_a_row=3),
        score=None if word is VerdictWord.MISSING else 0.61,
        stderr=0.02,
        coverage=1.0,
        comparisons=() if unscored else (_comparison(step, -0.004),),
        alpha_test=2.5e-6,
        lost_since=400 if step >= 500 else None,
    )


def _findings(step: int, subset: str) -> tuple[Verdict, ...]:
    base = replace(_trivia(600), comparisons=(_comparison(step, -0.11),), score=0.4)
    return (
        replace(base, subset=subset, lost_since=600, reason=Compared(before=0.51, now=0.4, margin=0.01, in_a_row=3)),
        replace(
            base,
            benchmark="sums",
            measure=Measure.OUTPUT_LENGTH,
            word=VerdictWord.REGRESSED,
            lost_since=700,
            reason=Compared(before=0.25, now=0.36, margin=0.01),
        ),
    )


def _transient() -> Verdict:
    falls = (Fall(benchmark="trivia", change=-0.08), Fall(benchmark="sums", change=-0.031))
    return replace(
        _trivia(_BACK),
        benchmark="",
        word=VerdictWord.TRANSIENT,
        reason=Together(falls=falls, compared=4, steps=(_BACK - 100,)),
        score=None,
        comparisons=(),
        lost_since=_BACK - 100,
    )


def _latency(step: int) -> tuple[LatencyVerdict, ...]:
    words = {200: VerdictWord.SUSPECT, 900: VerdictWord.REGRESSED, 1000: VerdictWord.REGRESSED}
    return tuple(
        _latency_verdict(metric, quantile, words.get(step, VerdictWord.INCONCLUSIVE))
        if metric is LatencyMetric.TPOT
        else _latency_verdict(metric, quantile, VerdictWord.INCONCLUSIVE)
        for metric in LatencyMetric
        for quantile in (0.5, 0.95)
    )


def _latency_verdict(metric: LatencyMetric, quantile: float, word: VerdictWord) -> LatencyVerdict:
    ratio = 1.004 if word is VerdictWord.INCONCLUSIVE else 1.083
    return LatencyVerdict(
        load="default",
        metric=metric,
        quantile=quantile,
        word=word,
        reason=AgainstReference(learning=5),
        method=LatencyMethod.INTERLEAVED,
        reference_step=100,
        candidate_ms=6.7,
        baseline_ms=6.2,
        ratio=ratio,
        ci_low=ratio - 0.012,
        ci_high=ratio + 0.012,
        p_slower=0.31 if word is VerdictWord.INCONCLUSIVE else 2.2e-9,
        p_faster=0.69,
        learned_from=9,
        sessions=2,
        requests=200,
        alpha_test=2.8e-5,
        detectable=1.04,
    )
