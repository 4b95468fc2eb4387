"""What a gate says, and what it rests on. Frozen values. What it demands stands in `rules`.

The order of `GateWord` is that of urgency: the first word that a required check has is the gate's.
"""

from dataclasses import dataclass
from enum import StrEnum

from eval_jobs.types import EvalRecord
from tracker.domain.compare.view import ComparedBenchmark, RunNoise, Side
from tracker.domain.gate.rules import GatePolicy, LatencyLimit


class GateWord(StrEnum):
    """The answers of a gate, most urgent first."""

    REGRESSION = "regression"
    """A loss is shown and measured what matters or more, or the candidate is beyond a limit that was set."""
    MISSING = "missing"
    """Not measured, or too few samples have a score."""
    INCOMPARABLE = "incomparable"
    """The two sides were not measured alike."""
    INCONCLUSIVE = "inconclusive"
    """Neither a loss nor its absence is shown: more samples are needed."""
    PASS = "pass"  # noqa: S105 - no password
    """Shown to have lost less than the smallest effect that matters."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkCheck:
    """The gate's answer about one benchmark, with its evidence."""

    benchmark: str
    required: bool
    word: GateWord
    reason: str
    """One sentence for a person."""
    min_effect: float
    alpha_test: float
    """Level that its loss was held to, after paying for the other benchmarks."""
    compared: ComparedBenchmark | None = None
    """None: nothing could be compared."""
    detectable: float | None = None
    """Smallest true loss that is called a regression with 80 % power."""
    samples_needed: int | None = None
    """With so many samples a candidate that lost nothing passes with 80 % power; None: not for want of samples."""


@dataclass(frozen=True, kw_only=True)
class LatencyCheck:
    """The gate's answer about one limit."""

    limit: LatencyLimit
    word: GateWord
    """PASS, REGRESSION, or MISSING when nothing was timed."""
    reason: str
    measured_ms: float | None = None


@dataclass(frozen=True, kw_only=True)
class GateReport:
    """The answer of a gate, with everything that it rests on but the samples."""

    word: GateWord
    candidate: Side
    baseline: Side
    alpha: float
    benchmarks: tuple[BenchmarkCheck, ...]
    """Required ones first, then as in the candidate's suite."""
    latency: tuple[LatencyCheck, ...] = ()
    changed: tuple[str, ...] = ()
    """What differs on purpose, a phrase each."""


@dataclass(frozen=True, kw_only=True)
class GateCase:
    """Everything that a gate's answer rests on."""

    baseline: EvalRecord
    """With its samples."""
    candidate: EvalRecord
    policy: GatePolicy
    noise: RunNoise
    """Of the candidate's run."""
