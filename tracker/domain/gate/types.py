"""Result of a gate, with its evidence. Frozen values. The requirements are in `rules`.

`GateWord` is ordered by urgency: the gate's word is the most urgent word of its required checks.
"""

from dataclasses import dataclass
from enum import StrEnum

from eval_jobs.types import EvalRecord
from tracker.domain.compare.view import ComparedBenchmark, RunNoise, Side
from tracker.domain.gate.rules import GatePolicy, LatencyLimit
from tracker.domain.records.reasons import Difference


class GateWord(StrEnum):
    """Results of a gate, most urgent first."""

    REGRESSION = "regression"
    """A significant loss of at least the smallest effect that matters, or a floor or latency limit is violated."""
    MISSING = "missing"
    """Not measured, or too few samples have a score."""
    INCOMPARABLE = "incomparable"
    """The two sides were measured differently."""
    INCONCLUSIVE = "inconclusive"
    """Neither a loss nor its absence is shown: more samples are needed."""
    PASS = "pass"  # noqa: S105 - no password
    """Shown to have lost less than the smallest effect that matters."""


@dataclass(frozen=True, kw_only=True)
class Contexts:
    """Clusters of a benchmark's samples."""

    kind: str
    """`passage`, `document`, `subset`, or `cluster` if the data declares them."""
    count: int
    """Clusters with two samples or more."""
    samples: int
    """Samples in them."""


@dataclass(frozen=True, kw_only=True)
class Clustering:
    """How a check takes dependent samples into account."""

    contexts: Contexts | None = None
    """The clusters in its standard errors; None: each sample counts alone."""
    warning: str = ""
    """Why its samples look clustered although the policy takes them as independent; empty: they do not."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkCheck:
    """Result of the gate for one benchmark, with its evidence."""

    benchmark: str
    required: bool
    word: GateWord
    reason: str
    """One sentence for display."""
    min_effect: float | None
    """Of the policy, else the default for this comparison; None: the policy has none and nothing was compared."""
    alpha_test: float
    """Significance level of the test for a loss, corrected for the other benchmarks."""
    compared: ComparedBenchmark | None = None
    """None if nothing could be compared."""
    is_default_margin: bool = False
    """Whether `min_effect` is the default, which depends on size, clusters and noise of this comparison."""
    clusters: Clustering = Clustering()
    detectable: float | None = None
    """Smallest true loss that is reported as a regression with 80 % power."""
    samples_needed: int | None = None
    """Samples with which an inconclusive check would be decided with 80 % power; None: no number of samples does it."""
    passing_min_effect: float | None = None
    """Smallest `min_effect` at which an inconclusive check would have passed; None: none, or it is decided."""


@dataclass(frozen=True, kw_only=True)
class LatencyCheck:
    """Result of the gate for one latency limit."""

    limit: LatencyLimit
    word: GateWord
    """PASS, REGRESSION, or MISSING if nothing was timed or too many requests failed."""
    reason: str
    measured_ms: float | None = None


@dataclass(frozen=True, kw_only=True)
class GateReport:
    """Result of a gate, with all its evidence except the samples."""

    word: GateWord
    candidate: Side
    baseline: Side
    alpha: float
    benchmarks: tuple[BenchmarkCheck, ...]
    """Required ones first; within each group, those with their own rule first."""
    latency: tuple[LatencyCheck, ...] = ()
    changed: tuple[str, ...] = ()
    """Intended differences, one phrase each."""
    neutral: tuple[Difference, ...] = ()
    """Settings that differ and cannot change a score."""


@dataclass(frozen=True, kw_only=True)
class GateCase:
    """Input of a gate."""

    baseline: EvalRecord
    """With its samples."""
    candidate: EvalRecord
    policy: GatePolicy
    noise: RunNoise
    """Noise of the candidate's run."""
