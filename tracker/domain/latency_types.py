"""What the tracker concludes about latency. Frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tracker.domain.types import VerdictWord


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
    planned_checkpoints: int = 100
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
    reason: str
    """One sentence for a person."""
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
