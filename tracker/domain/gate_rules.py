"""What a gate demands of a candidate. Frozen values, light to load: every command reads them with the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tracker.domain.types import LatencyMetric


class Change(StrEnum):
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


@dataclass(frozen=True, kw_only=True)
class LatencyLimit:
    """The longest time that a quantile of the candidate's requests may take."""

    metric: LatencyMetric
    quantile: float
    """.5, .9, .95 or .99."""
    max_ms: float
    load: str = "default"
    required: bool = True


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
    changed: tuple[Change, ...] = ()
    """What differs on purpose; all else must be alike."""
