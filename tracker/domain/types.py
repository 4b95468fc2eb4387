"""What the tracker concludes from records: comparisons, verdicts, reports, alerts, gaps. Frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


@dataclass(frozen=True, kw_only=True)
class Gap:
    """A checkpoint that the run wrote and that will not be evaluated, and why. Never skipped silently."""

    run_id: str
    step: int
    source_uri: str
    code: str
    """Code of the error that explains it, as in `eval_jobs.errors`."""
    message: str
    hint: str
    seen_at: datetime


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """One value of a training curve."""

    key: str
    """Metric name as it appears in the tracking store, `train/loss`."""
    step: int
    value: float


class Measure(StrEnum):
    """What is followed of every answer. All are oriented: up is better."""

    SCORE = "score"
    """x, or 1 - x where lower is better."""
    OUTPUT_LENGTH = "output length"
    """1 - output tokens / longest answer allowed: an answer that gets longer goes down."""
    COMPLETENESS = "completeness"
    """1, or 0 for an answer that hit the longest length allowed."""


class Baseline(StrEnum):
    """What a checkpoint is compared with."""

    PREVIOUS = "previous"
    """The checkpoint before it."""
    BEST = "best"
    """The best earlier checkpoint (of the first phase, where phases are declared)."""
    RECENT = "recent"
    """The checkpoints just before."""
    PEAK = "peak"
    """The best block of earlier checkpoints."""
    PINNED = "pinned"
    """A model that the policy names: the base model, a checkpoint of another run."""
    GIVEN = "given"
    """The other side of `tracker compare`."""


class Closing(StrEnum):
    """How a loss ended."""

    RECOVERED = "recovered"
    ACCEPTED = "accepted"
    """Somebody said that this level is the new normal."""


@dataclass(frozen=True, kw_only=True)
class Episode:
    """One loss, from the checkpoint that raised the alarm until it ends. People are told of both, once.

    It is known by everything up to `opened_step`.
    """

    run_id: str
    suite: str
    benchmark: str
    subset: str = ""
    """Empty: the whole benchmark."""
    measure: Measure = Measure.SCORE
    opened_step: int
    """Step of the checkpoint that raised the alarm."""
    onset_step: int
    """First step of the loss, as far as the evidence can place it; at most `opened_step`."""
    forgotten: bool = False
    """Below the peak at three checkpoints in a row, of something that had been learned."""
    closed_step: int | None = None
    """Step at which it ended; None: it lasts."""
    closed_by: Closing | None = None


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """Somebody's word that the level of a benchmark at a step is the new normal. Known by run, step and benchmark."""

    run_id: str
    step: int
    benchmark: str
    from_step: int
    """Checkpoints before it no longer count for this benchmark: the onset of the loss that was accepted."""
    reason: str
    accepted_at: datetime


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Paired statistics of candidate minus baseline on their common samples. Scores are oriented: up is better."""

    baseline: Baseline
    baseline_step: int
    n_common: int
    common_fraction: float
    """Samples scored on both sides / samples planned."""
    delta: float
    stderr: float
    ci_low: float
    """95 % interval of delta."""
    ci_high: float
    p_worse: float
    """One-sided p of "candidate is worse", already multiplied by the number of baselines it was selected from."""
    p_better: float
    n_lost: int
    """Right before, wrong now (score above and below .5)."""
    n_gained: int
    method: str
    """`mcnemar-midp`, `paired-t` or `clustered-t`."""


class VerdictWord(StrEnum):
    """The vocabulary of verdicts, most urgent first."""

    MISSING = "missing"
    """No result, or too few samples scored: a blind spot."""
    INCOMPARABLE = "incomparable"
    """Not measured alike, or too few common samples."""
    FORGOTTEN = "forgotten"
    """Was learned, and is below the best at three checkpoints in a row."""
    REGRESSED = "regressed"
    IMPROVED = "improved"
    EQUIVALENT = "equivalent"
    """Shown to be within the margin; not the same as "no difference found"."""
    SUSPECT = "suspect"
    """Worse by p < .01 only: shown, never notified."""
    INCONCLUSIVE = "inconclusive"
    FIRST = "first"
    """Nothing earlier to compare with."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The decision on one benchmark at one checkpoint, with its evidence."""

    benchmark: str
    word: VerdictWord
    reason: str
    """One sentence for a person."""
    score: float | None
    """Mean over scored samples, as the benchmark reports it."""
    stderr: float | None
    coverage: float
    """Scored / planned samples."""
    comparisons: tuple[Comparison, ...]
    alpha_test: float
    """Level that one test was held to."""
    mde: float | None
    """Smallest true change that this comparison would have found with 80 % power."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """All verdicts of one checkpoint."""

    run_id: str
    step: int
    plan_id: str
    verdicts: tuple[Verdict, ...]
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A stretch of the training run, from `from_step` to the next phase."""

    name: str
    from_step: int


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What counts as a finding."""

    alpha: float = 0.05
    """Chance that sample noise alone raises any alarm over the whole run."""
    min_effect: float = 0.02
    """Smaller losses are not reported as regressions."""
    equivalence_margin: float = 0.02
    min_coverage: float = 0.95
    planned_checkpoints: int = 100
    phases: tuple[Phase, ...] = ()


class AlertState(StrEnum):
    """Whether an alert's cause is present."""

    FIRING = "firing"
    RESOLVED = "resolved"


@dataclass(frozen=True, kw_only=True)
class Alert:
    """Something a person should know now. One per cause: `fingerprint` is equal for firing and resolved."""

    fingerprint: str
    run_id: str
    step: int
    subject: str
    """Benchmark name, or `checkpoint`."""
    state: AlertState
    message: str
    raised_at: datetime
