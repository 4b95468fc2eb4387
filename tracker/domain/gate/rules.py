"""What a gate demands of a candidate. Frozen values, light to load: every command reads them with the configuration."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tracker.domain.records.types import LatencyMetric

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
"""What a probe keeps of its times."""


class GatedChange(StrEnum):
    """What may differ between the two sides on purpose, because it is what is gated."""

    PROMPT = "prompt"
    """The prompt template, or the number of examples in the prompt."""
    ENGINE = "engine"
    """How checkpoints are served: engine, version, dtype, arguments."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkRule:
    """What is demanded of one benchmark."""

    required: bool = True
    """False: its answer is shown and decides nothing."""
    min_effect: float = 0.01
    """Smallest loss that matters, in score units."""
    min_coverage: float = 0.95
    """Share of the samples that must have a score on both sides."""
    floor: float | None = None
    """Score that the candidate must reach whatever the baseline has; where lower is better, must not exceed."""

    def __post_init__(self) -> None:
        """Refuse what every candidate meets, or none can.

        Raises:
            ValueError: a number is out of its range.
        """
        has_floor = self.floor is None or math.isfinite(self.floor)
        if not (0 < self.min_effect < 1 and 0 < self.min_coverage <= 1 and has_floor):
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
        """Refuse what cannot be looked up, or is no limit.

        Raises:
            ValueError: a number is out of its range.
        """
        if self.quantile not in QUANTILES.values() or not 0 < self.max_ms < math.inf:
            raise ValueError(f"out of range: {self}")


@dataclass(frozen=True, kw_only=True)
class GatePolicy:
    """What a gate holds a candidate to."""

    alpha: float = 0.05
    """Chance that the gate calls REGRESSION although nothing was lost, over all required benchmarks together."""
    otherwise: BenchmarkRule = BenchmarkRule()
    """Of benchmarks that have no rule of their own."""
    benchmarks: Mapping[str, BenchmarkRule] = field(default_factory=dict)
    """Rules by benchmark; each of these benchmarks must have been measured."""
    latency: tuple[LatencyLimit, ...] = ()
    changed: tuple[GatedChange, ...] = ()
    """What differs on purpose; all else must be alike."""

    def __post_init__(self) -> None:
        """Refuse a level that calls everything a loss, or nothing.

        Raises:
            ValueError: `alpha` is out of its range.
        """
        if not 0 < self.alpha < 0.5:
            raise ValueError(f"out of range: {self}")
