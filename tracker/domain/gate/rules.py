"""Requirements of a gate. Frozen values, cheap to import: every command loads them with the configuration."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tracker.domain.records.types import LatencyMetric

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
"""Quantiles of its times that a probe keeps."""


POWER = 0.8
"""Share of candidates that lost nothing that pass all required benchmarks with the default margins."""
COUNTS = 0.01
"""A significant loss of one point is a regression if no `min_effect` says that only larger ones matter."""
SMALLEST = 0.001
"""Least margin: scores are shown with 3 decimals."""


class GatedChange(StrEnum):
    """An intended difference between the two sides: the change that is gated."""

    PROMPT = "prompt"
    """The prompt template, or the number of examples in the prompt."""
    ENGINE = "engine"
    """How checkpoints are served: engine, version, dtype, arguments."""


class Clusters(StrEnum):
    """Which samples of a benchmark are right or wrong together."""

    FOUND = "found"
    """Those with the same passage, document or declared cluster (`eval_jobs.contexts`)."""
    SUBSET = "subset"
    """Those of one subset."""
    NONE = "none"
    """None: each sample counts alone."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkRule:
    """Requirements for one benchmark."""

    required: bool = True
    """False means that the check is advisory."""
    min_effect: float | None = None
    """Smallest loss that matters, in score units; None: the smallest at which an equal candidate passes
    (`margins.default_margin`)."""
    min_coverage: float = 0.95
    """Share of the samples that must have a score on both sides."""
    floor: float | None = None
    """Score that the candidate must reach (must not exceed, if lower is better), regardless of the baseline."""
    clusters: Clusters = Clusters.FOUND
    min_loss: float | None = None
    """Smallest significant loss that is a regression; None: `min_effect`, at most `COUNTS` where that is None."""

    def __post_init__(self) -> None:
        """Reject requirements that every candidate meets, or none can meet.

        Raises:
            ValueError: a number is out of its range.
        """
        has_floor = self.floor is None or math.isfinite(self.floor)
        has_effects = all(value is None or 0 < value < 1 for value in (self.min_effect, self.min_loss))
        if not (has_effects and 0 < self.min_coverage <= 1 and has_floor):
            raise ValueError(f"out of range: {self}")


@dataclass(frozen=True, kw_only=True)
class LatencyLimit:
    """Limit for one latency quantile of the candidate."""

    metric: LatencyMetric
    quantile: float
    """.5, .9, .95 or .99."""
    max_ms: float
    load: str = "default"
    required: bool = True

    def __post_init__(self) -> None:
        """Reject a quantile that probes do not keep, and a limit that is not positive and finite.

        Raises:
            ValueError: a number is out of its range.
        """
        if self.quantile not in QUANTILES.values() or not 0 < self.max_ms < math.inf:
            raise ValueError(f"out of range: {self}")


@dataclass(frozen=True, kw_only=True)
class GatePolicy:
    """Requirements of a gate for a candidate."""

    alpha: float = 0.05
    """Probability of any REGRESSION although nothing was lost, over all required benchmarks together."""
    otherwise: BenchmarkRule = BenchmarkRule()
    """Rule for benchmarks without a rule of their own."""
    benchmarks: Mapping[str, BenchmarkRule] = field(default_factory=dict)
    """Rules by benchmark; each of these benchmarks must have been measured."""
    latency: tuple[LatencyLimit, ...] = ()
    changed: tuple[GatedChange, ...] = ()
    """Intended differences; all other settings must be equal."""

    def __post_init__(self) -> None:
        """Reject a level at which every result is a loss, or none.

        Raises:
            ValueError: `alpha` is out of its range.
        """
        if not 0 < self.alpha < 0.5:
            raise ValueError(f"out of range: {self}")

    def rule_of(self, benchmark: str) -> BenchmarkRule:
        """Return the rule of a benchmark."""
        return self.benchmarks.get(benchmark, self.otherwise)
