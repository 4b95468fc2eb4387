"""What the tracker concludes from records: comparisons, verdicts, reports, alerts, gaps. Frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from eval_jobs.types import Checkpoint, Cost
from tracker.domain.records.calibration import Repetition
from tracker.domain.records.reasons import Failed, LatencyReason, Reason


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
    is_inferred: bool = False
    """Nobody saw the checkpoint: the rhythm in which the trainer saves says that it was there."""


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
    SUPERSEDED = "superseded"
    """Training went back to before it: the checkpoint that raised the alarm was left behind."""


@dataclass(frozen=True, kw_only=True)
class Incident:
    """One loss, from the checkpoint that raised the alarm until it ends. People are notified of both, once.

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
    opened_digest: str
    """Digest of the checkpoint that raised the alarm."""
    closed_digest: str = ""
    """Digest of the checkpoint that showed the recovery; empty: none did."""


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
    """Worse by at least p < .01 (screened: p < .05), or known only from means: shown, never notified. Decided in
    `scores.suspicion`."""
    INCONCLUSIVE = "inconclusive"
    FIRST = "first"
    """Nothing earlier to compare with."""


@dataclass(frozen=True, kw_only=True)
class Screened:
    """How large a part of a benchmark was asked, and what that took."""

    asked: int
    """Samples."""
    left_out: int
    tokens: int | None
    """Of questions and answers; None: the server did not say."""
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The decision on one benchmark at one checkpoint, with its evidence."""

    benchmark: str
    subset: str = ""
    """Empty: the whole benchmark."""
    measure: Measure = Measure.SCORE
    word: VerdictWord
    reason: Reason | None
    """`records.reason_text.reason_text` words it; None: an outline keeps none."""
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
    screened: Screened | None = None
    """Set where only a part of the benchmark was asked: score and verdict are of that part."""
    repetition: Repetition | None = None
    """What repeating the evaluation alone changes; None: the benchmark was not calibrated by then."""


USUAL_CHECKPOINTS = 100
"""Of a run whose number of checkpoints is not known."""


class LatencyMetric(StrEnum):
    """Which time of a request."""

    TTFT = "ttft"
    """Send to first token."""
    TPOT = "tpot"
    """Per further token."""
    E2E = "e2e"
    """Send to last token."""


class LatencyMethod(StrEnum):
    """What a latency is judged against."""

    INTERLEAVED = "interleaved"
    """Requests of a reference checkpoint, timed in between on the same engine."""
    HISTORY = "history"
    """The run's earlier checkpoints: the machine may have changed its pace since, so at most `suspect`."""


@dataclass(frozen=True, kw_only=True)
class LatencyPolicy:
    """What counts as a finding about latency."""

    alpha: float = 0.05
    """Chance that noise alone calls any checkpoint of the whole run slower, over all metrics and quantiles."""
    planned_checkpoints: int = USUAL_CHECKPOINTS
    min_slowdown_p50: float = 0.03
    """Smallest change of a median that is called one, as a share: .03 is 3 % slower, or faster by the same factor."""
    min_slowdown_p95: float = 0.05


@dataclass(frozen=True, kw_only=True)
class LatencyVerdict:
    """The decision on one quantile of one metric under one load, with its evidence. Ratios above 1 are slower."""

    load: str
    metric: LatencyMetric
    quantile: float
    """.5 or .95."""
    word: VerdictWord
    """REGRESSED, IMPROVED, SUSPECT, INCONCLUSIVE, FIRST, or MISSING when nothing was timed."""
    reason: LatencyReason | None
    """`records.reason_text.latency_reason_text` words it; None: not decided yet."""
    without_reference: Failed | None = None
    """Why there is no comparison with the reference that was to be timed."""
    method: LatencyMethod
    reference_step: int | None = None
    """Step of the reference; None without one."""
    candidate_ms: float | None = None
    baseline_ms: float | None = None
    """The same quantile of the reference, or the geometric mean of the last checkpoints."""
    ratio: float | None = None
    """Candidate / baseline, over `sessions` checkpoints; None when nothing could be compared."""
    ci_low: float | None = None
    """95 % interval of `ratio`."""
    ci_high: float | None = None
    p_slower: float | None = None
    """One-sided p of "the candidate is slower"."""
    p_faster: float | None = None
    overdispersion: float | None = None
    """By what the variance was multiplied, from how far earlier ratios scattered; None without a reference."""
    between_starts: float | None = None
    """Error of the log ratio from starts of the engine and moods of the machine; None without a reference."""
    learned_from: int = 0
    """Earlier checkpoints of the series: of the noise with a reference, of the comparison without one."""
    sessions: int = 1
    """Newest checkpoints whose ratios were averaged for this decision: 1, 2 or 4."""
    requests: int = 0
    """Pairs of requests of this checkpoint; without a reference, its requests."""
    alpha_test: float
    """Level that one test was held to."""
    detectable: float | None = None
    """Smallest true ratio above 1 that is found with 80 % power."""


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
    incidents: tuple[Incident, ...] = ()
    """Losses that open, change or end at this checkpoint."""
    latency: tuple[LatencyVerdict, ...] = ()
    """Six for each load: TTFT, TPOT and E2E, by p50 and p95."""
    checkpoint: Checkpoint
    """What was measured."""
    cost: Cost | None = None
    """What that took; None: not known."""
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A stretch of the training run, from `from_step` to the next phase."""

    name: Annotated[str, Field(min_length=1)]
    """Name of the phase in reports."""
    from_step: Annotated[int, Field(ge=0)]
    """First step of the phase."""


@dataclass(frozen=True, kw_only=True)
class Pinned:
    """A checkpoint that every other one is compared with as well."""

    run_id: str
    step: int


@dataclass(frozen=True, kw_only=True)
class PolicySettings:
    """What a person may set of what counts as a finding."""

    alpha: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """Family-wise error rate: probability of any false alarm over a whole healthy run."""
    min_effect: Annotated[float, Field(ge=0, lt=1)] = 0.01
    """Smallest score loss that counts as a regression."""
    subset_min_effect: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """Smallest score loss of a single subset that counts as a regression."""
    equivalence_margin: Annotated[float, Field(gt=0, lt=1)] = 0.01
    """Scores shown to differ by less than this margin are reported as equivalent."""
    min_coverage: Annotated[float, Field(gt=0, le=1)] = 0.95
    """Minimum coverage (scored samples / planned samples). Below it the verdict is `missing`."""
    planned_checkpoints: Annotated[int | None, Field(gt=0)] = None
    """Expected number of checkpoints of the run; `alpha` is spent evenly over them. Default: half of `alpha`
    for the first 100 checkpoints, a quarter for the next 200, and so on."""


@dataclass(frozen=True, kw_only=True)
class Policy(PolicySettings):
    """Error rates and thresholds of verdicts."""

    phases: tuple[Phase, ...] = ()
    pinned: Pinned | None = None
    """The base model, or a checkpoint of another run."""
    latency: LatencyPolicy = LatencyPolicy()
    chance: Mapping[str, float] = field(default_factory=dict)
    """Score of guessing, by benchmark, where it is known: what is above it has been learned."""
