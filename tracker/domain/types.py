"""What the tracker concludes from records: comparisons, verdicts, reports, alerts, gaps. Frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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

    RECENT = "recent"
    """The checkpoints just before."""
    PEAK = "peak"
    """The best block of earlier checkpoints."""
    PINNED = "pinned"
    """A checkpoint that the policy names: the base model, or one of another run."""
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
    last_step: int | None = None
    """Last checkpoint that was below; None unless it recovered."""


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
    baseline_steps: tuple[int, ...]
    """Checkpoints that the baseline is the mean of, ascending."""
    pooled_steps: tuple[int, ...]
    """Checkpoints that the candidate's side is the mean of: the candidate, and the ones just before it."""
    n_common: int
    common_fraction: float
    """Samples scored on both sides / samples of the benchmark."""
    delta: float
    stderr: float
    """With jitter."""
    ci_low: float
    """95 % interval of delta, with jitter."""
    ci_high: float
    p_worse: float
    """One-sided p of "candidate is worse", with jitter, times `selected_from`: what verdicts rest on."""
    p_better: float
    p_worse_items: float
    """The same without jitter: what the samples alone would say."""
    jitter: float
    """Training jitter tau of this benchmark, in score units; 0 where none is known."""
    selected_from: int = 1
    """Blocks that the baseline is the best of."""
    n_lost: int
    """Right before, wrong now (above .5 on the baseline's side, not above it on the candidate's)."""
    n_gained: int
    method: str
    """`pooled-t`; for `tracker compare`: `mcnemar-midp`, `paired-t` or `clustered-t`."""


class VerdictWord(StrEnum):
    """The vocabulary of verdicts, most urgent first."""

    MISSING = "missing"
    """No result, or too few samples scored: a blind spot."""
    INCOMPARABLE = "incomparable"
    """Not measured alike, or too few common samples."""
    FORGOTTEN = "forgotten"
    """Was learned, and is below the peak at three checkpoints in a row."""
    REGRESSED = "regressed"
    RECOVERED = "recovered"
    """Was lost, and is back for two checkpoints in a row."""
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
    subset: str = ""
    """Empty: the whole benchmark."""
    measure: Measure = Measure.SCORE
    word: VerdictWord
    reason: str
    """One sentence for a person."""
    score: float | None
    """Mean over scored samples, as the benchmark reports it; of a subset or another measure, its own mean."""
    stderr: float | None
    coverage: float
    """Scored / planned samples."""
    comparisons: tuple[Comparison, ...] = ()
    """The evidence that decided first, then the candidate alone against each baseline."""
    alpha_test: float
    """Level that one test was held to."""
    mde: float | None = None
    """Smallest true loss that the candidate alone would have shown with 80 % power."""
    mde_pooled: float | None = None
    """The same of the newest four checkpoints together."""
    lost_since: int | None = None
    """Onset of the loss that lasts at this checkpoint, or that ends here."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """All verdicts of one checkpoint."""

    run_id: str
    step: int
    plan_id: str
    verdicts: tuple[Verdict, ...]
    """One for each benchmark."""
    findings: tuple[Verdict, ...] = ()
    """Losses of single subsets, and answers that got longer or were cut off more often: only where there is one."""
    episodes: tuple[Episode, ...] = ()
    """Losses that open, change or end at this checkpoint."""
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A stretch of the training run, from `from_step` to the next phase."""

    name: str
    from_step: int


@dataclass(frozen=True, kw_only=True)
class Pinned:
    """A checkpoint that every other one is compared with as well."""

    run_id: str
    step: int


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What counts as a finding."""

    alpha: float = 0.05
    """Chance of any false alarm over a whole healthy run."""
    min_effect: float = 0.01
    """Smaller losses are not reported as regressions."""
    subset_min_effect: float = 0.05
    """The same for one subset."""
    equivalence_margin: float = 0.01
    min_coverage: float = 0.95
    planned_checkpoints: int | None = None
    """None: unknown; `alpha` is then spent in epochs."""
    phases: tuple[Phase, ...] = ()
    pinned: Pinned | None = None
    """The base model, or a checkpoint of another run."""
    chance: Mapping[str, float] = field(default_factory=dict)
    """Score of guessing, by benchmark, where it is known: what is above it has been learned."""


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
