"""Conclusions that the tracker draws from records: comparisons, verdicts, reports, incidents, gaps. Frozen values."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from eval_jobs.types import Checkpoint, Cost
from tracker.domain.records.calibration import NoiseOfRun, Repetition
from tracker.domain.records.losses import Drop, Incident, Measure
from tracker.domain.records.reasons import Failed, LatencyReason, Reason


@dataclass(frozen=True, kw_only=True)
class Gap:
    """A checkpoint that the run wrote and that will not be evaluated, with the reason. Never skipped silently."""

    run_id: str
    step: int
    source_uri: str
    code: str
    """Code of the error that explains it, as in `eval_jobs.errors`."""
    message: str
    hint: str
    seen_at: datetime
    is_inferred: bool = False
    """The checkpoint was never found: the trainer's save interval implies that it existed."""
    last_step: int | None = None
    """The last step of several that are missing at equal intervals; None: only `step` is missing."""
    count: int = 1
    """Number of these steps."""

    @property
    def steps(self) -> range:
        """All steps of the gap."""
        if self.last_step is None:
            return range(self.step, self.step + 1)
        return range(self.step, self.last_step + 1, (self.last_step - self.step) // (self.count - 1))


@dataclass(frozen=True, kw_only=True, slots=True)
class CurvePoint:
    """One value of a training curve."""

    key: str
    """Metric name as it appears in the tracking store, such as `train/loss`."""
    step: int
    value: float


class Baseline(StrEnum):
    """What a checkpoint is compared with."""

    RECENT = "recent"
    """The checkpoints just before."""
    PEAK = "peak"
    """The best block of earlier checkpoints."""
    PINNED = "pinned"
    """A checkpoint named in the policy: the base model, or one of another run."""
    GIVEN = "given"
    """The other side of `tracker compare`."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Paired statistics of candidate minus baseline on their common samples. Scores are oriented: up is better."""

    baseline: Baseline
    baseline_steps: tuple[int, ...]
    """Steps of the checkpoints averaged as the baseline, ascending."""
    pooled_steps: tuple[int, ...]
    """Steps of the checkpoints averaged on the candidate's side: the candidate, and the ones just before it."""
    n_common: int
    common_fraction: float
    """Samples scored on both sides / samples of the benchmark."""
    delta: float
    stderr: float
    """Standard error of `delta`, with jitter."""
    ci_low: float
    """95 % interval of `delta`, with jitter."""
    ci_high: float
    p_worse: float
    """One-sided p of "candidate is worse", with jitter, times `selected_from`: the basis of verdicts."""
    p_better: float
    p_worse_items: float
    """The same without jitter, from the samples alone."""
    jitter: float
    """Training jitter tau of this benchmark, in score units; 0 if unknown."""
    selected_from: int = 1
    """Number of blocks that the baseline is the best of."""
    n_lost: int
    """Samples that were right (above .5) at 80 % of the baseline's checkpoints or more, and are right at 20 % of those
    on the candidate's side or less."""
    n_gained: int
    """The reverse."""
    method: str
    """`pooled-t`; for `tracker compare`: `mcnemar-midp`, `paired-t` or `clustered-t`."""


class VerdictWord(StrEnum):
    """Words of verdicts, most urgent first."""

    MISSING = "missing"
    """No result, or too few samples scored: a loss would not be detected."""
    INCOMPARABLE = "incomparable"
    """Measured differently, or too few common samples."""
    FORGOTTEN = "forgotten"
    """Was learned, and is below the peak at three checkpoints in a row."""
    REGRESSED = "regressed"
    BELOW_GUESSING = "below guessing"
    """Was never better than guessing, and is now clearly worse: often the format of the answers."""
    RECOVERED = "recovered"
    """Was lost, and is back: clearly above the loss, at two checkpoints in a row or at the baseline."""
    TRANSIENT = "transient"
    """Was lower at one checkpoint, and the next one is back."""
    IMPROVED = "improved"
    EQUIVALENT = "equivalent"
    """Shown to be within the margin; not the same as "no difference found"."""
    SUSPECT = "suspect"
    """Worse at p < .01 (screening: p < .02), or a loss known only from means: shown, never notified. Decided in
    `scores.suspicion`."""
    RISING = "rising"
    """The reverse of `suspect`: may be better."""
    INCONCLUSIVE = "inconclusive"
    NOT_LEARNED = "not learned"
    """No checkpoint was better than guessing yet: there is nothing to lose, so nothing was tested."""
    FIRST = "first"
    """Nothing earlier to compare with."""


WORSE = frozenset({VerdictWord.FORGOTTEN, VerdictWord.REGRESSED, VerdictWord.BELOW_GUESSING})
"""Verdicts that show a loss."""
IS_BACK = frozenset({VerdictWord.RECOVERED, VerdictWord.TRANSIENT})
"""Verdicts that end a loss."""


@dataclass(frozen=True, kw_only=True)
class Screened:
    """Size of the evaluated part of a benchmark, and its cost."""

    asked: int
    """Number of samples evaluated."""
    left_out: int
    tokens: int | None
    """Input and output tokens; None if the server did not report them."""
    seconds: float
    margin: float | None = None
    """Half the width of the 95 % interval of the estimated score of the whole benchmark; None: no estimate."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The decision on one benchmark at one checkpoint, with its evidence."""

    benchmark: str
    """Empty for all benchmarks of the suite together."""
    subset: str = ""
    """Empty for the whole benchmark."""
    measure: Measure = Measure.SCORE
    word: VerdictWord
    reason: Reason | None
    """Formatted by `records.reason_text.reason_text`; None in an outline unless the result is missing."""
    score: float | None
    """Mean over scored samples, as the benchmark reports it; for a subset or another measure, its own mean."""
    stderr: float | None
    units: int | None = None
    """Number of samples, or of their clusters, behind `stderr`; None: unknown."""
    coverage: float
    """Scored / planned samples."""
    comparisons: tuple[Comparison, ...] = ()
    """The deciding comparison first, then the candidate alone against each baseline."""
    alpha_test: float
    """Significance level of one test."""
    mde: float | None = None
    """Smallest true loss that the candidate alone would have shown with 80 % power."""
    mde_pooled: float | None = None
    """The same for the newest four checkpoints together."""
    lost_since: int | None = None
    """Onset of the loss that is open at this checkpoint, or that ends here."""
    drop: Drop | None = None
    """What the loss that is open at this checkpoint took, or that ends here; None: unknown, or there is none."""
    screened: Screened | None = None
    """Set if only a part of the benchmark was evaluated: the score is an estimate of that of the whole benchmark."""
    repetition: Repetition | None = None
    """Effect of repeating the evaluation alone; None if the benchmark was not calibrated by then."""

    @property
    def open_drop(self) -> Drop | None:
        """What the loss took that is open at this checkpoint; None without one."""
        if self.word in IS_BACK:
            return None
        return self.drop


class LatencyMetric(StrEnum):
    """Time of a request."""

    TTFT = "ttft"
    """From sending to the first token."""
    TPOT = "tpot"
    """Per output token after the first."""
    E2E = "e2e"
    """From sending to the last token."""


class LatencyMethod(StrEnum):
    """What a latency is compared with."""

    INTERLEAVED = "interleaved"
    """Requests of a reference checkpoint, timed in between on the same engine."""
    HISTORY = "history"
    """The run's earlier checkpoints: the machine's speed may have changed since, so at most `suspect`."""


@dataclass(frozen=True, kw_only=True)
class LatencyVerdict:
    """The decision on one quantile of one metric under one load, with its evidence. Ratios above 1 are slower."""

    load: str
    metric: LatencyMetric
    quantile: float
    """.5 or .95."""
    word: VerdictWord
    """REGRESSED, IMPROVED, SUSPECT, INCONCLUSIVE, FIRST, or MISSING if nothing was timed."""
    reason: LatencyReason | None
    """Formatted by `records.reason_text.latency_reason_text`; None if not decided yet."""
    without_reference: Failed | None = None
    """Why the planned comparison with a reference is missing."""
    method: LatencyMethod
    reference_step: int | None = None
    """Step of the reference; None without one."""
    candidate_ms: float | None = None
    baseline_ms: float | None = None
    """The same quantile of the reference, or its geometric mean over the last checkpoints."""
    ratio: float | None = None
    """Candidate / baseline, over `sessions` checkpoints; None if nothing could be compared."""
    ci_low: float | None = None
    """95 % interval of `ratio`."""
    ci_high: float | None = None
    p_slower: float | None = None
    """One-sided p of "the candidate is slower"."""
    p_faster: float | None = None
    overdispersion: float | None = None
    """Factor of the variance, estimated from the scatter of earlier ratios; None without a reference."""
    between_starts: float | None = None
    """Standard error of the log ratio due to engine starts and the state of the machine; None without a reference."""
    learned_from: int = 0
    """Number of earlier checkpoints used: for the noise with a reference, for the comparison without one."""
    sessions: int = 1
    """Newest checkpoints whose ratios were averaged for this decision: 1, 2 or 4."""
    requests: int = 0
    """Pairs of requests of this checkpoint; without a reference, its requests."""
    alpha_test: float
    """Significance level of one test."""
    detectable: float | None = None
    """Smallest true ratio above 1 that is detected with 80 % power."""


RULES_VERSION = 5
"""Version of the rules of verdicts: a change that gives checkpoints other verdicts increases it."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """All verdicts of one checkpoint."""

    run_id: str
    step: int
    plan_id: str
    verdicts: tuple[Verdict, ...]
    """One for each benchmark."""
    findings: tuple[Verdict, ...] = ()
    """Losses of single subsets, and answers that became longer or were truncated more often; empty without any."""
    incidents: tuple[Incident, ...] = ()
    """Losses that open, last or end at this checkpoint, those that last with their newest numbers; of a checkpoint that
    was judged after later ones, only what it changed."""
    latency: tuple[LatencyVerdict, ...] = ()
    """Six for each load: TTFT, TPOT and E2E, by p50 and p95."""
    checkpoint: Checkpoint
    """The evaluated checkpoint."""
    cost: Cost | None = None
    """Cost of the evaluation; None if unknown."""
    noise: NoiseOfRun | None = None
    """None with too few checkpoints, and in reports that do not say."""
    pending_steps: tuple[int, ...] = ()
    """Earlier checkpoints whose results are pending: with them, the verdicts may change."""
    created_at: datetime
    rules_version: int = 1
    """`RULES_VERSION` of the program that decided; 1 in reports that do not say."""
