"""Noise, as stored and as shown: of repeated evaluations of one checkpoint, and between the checkpoints of a run."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from eval_jobs.types import BenchmarkFailure, EngineInfo, EvalPlan


@dataclass(frozen=True, kw_only=True)
class AskedTwice:
    """One benchmark, evaluated twice on the same checkpoint in the same way: counts and sums, no conclusion.

    Repeats of a sample are averaged first, as for a verdict.
    """

    benchmark: str
    fingerprint: str
    """Of the first pass: `identity.benchmark_fingerprint` of every ordinary evaluation of this benchmark."""
    planned: int
    """Samples evaluated in either pass."""
    samples: int
    """Samples that have a score in both passes."""
    flips: int
    """Of them, those whose score differs."""
    other_texts: int
    """Of them, those with equal scores but different texts."""
    squares: float
    """Sum over samples of (second score - first score)^2."""
    largest: float
    """Largest |second score - first score|."""
    first_mean: float
    second_mean: float
    p_shift: float
    """Two-sided p of "both passes have the same mean": a small p shows that something besides chance changed."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Result of one calibration. Identified by the id of its plan."""

    plan: EvalPlan
    engine: EngineInfo | None
    """None if no engine could be started."""
    benchmarks: tuple[AskedTwice, ...]
    failures: tuple[BenchmarkFailure, ...] = ()
    """Benchmarks without a result in one of the passes, or with too few scores."""
    started_at: datetime
    finished_at: datetime


class Fitness(StrEnum):
    """Whether repeating an evaluation changes scores by less than the smallest effect that counts."""

    FIT = "fit"
    """Shown to change less than `policy.min_effect`."""
    UNFIT = "unfit"
    """Shown to change more."""
    UNSURE = "unsure"
    """Too few samples to show either."""


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """Effect of repeating the evaluation alone on a benchmark: shown with every difference of scores."""

    benchmark: str
    samples: int
    flips: int
    flip_rate_low: float
    """95 % interval of the share of samples that flip; never of width 0."""
    flip_rate_high: float
    other_texts: int
    noise: float
    """Standard deviation of the mean score caused by decoding alone, in score units."""
    noise_low: float
    """95 % interval of `noise`."""
    noise_high: float
    shift: float
    """Second mean minus first if chance does not explain the difference; else 0."""
    fitness: Fitness
    min_effect: float
    """Smallest effect that counts, which `fitness` refers to, in score units."""
    run_id: str
    step: int
    """Step of the checkpoint that was evaluated twice."""
    engine: str
    """Name and version."""
    measured_at: datetime
    stale: str = ""
    """What has changed since, so that the calibration is no longer valid; empty if it is valid."""


class NoiseAspect(StrEnum):
    """What describes the noise between the checkpoints of a run."""

    JITTER = "jitter"
    """The largest of all benchmarks."""
    SPREAD = "spread"
    """The largest jitter divided by the smallest."""
    PERSISTENCE = "persistence"
    TAILS = "tails"


@dataclass(frozen=True, kw_only=True)
class OutOfRange:
    """An aspect of the noise beyond the range in which the error rate was simulated."""

    aspect: NoiseAspect
    value: float
    limit: float
    """Largest value simulated."""
    benchmark: str = ""
    """The one with the largest jitter; empty for other aspects."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkNoise:
    """Noise of one benchmark between the checkpoints of its run."""

    benchmark: str
    jitter: float
    """Standard deviation tau that the samples do not explain, in score units."""
    checkpoints: int
    """Number of newest checkpoints that it was estimated from."""


@dataclass(frozen=True, kw_only=True)
class NoiseOfRun:
    """Noise between the checkpoints of a run, on whose range the error rate depends (`regression.diagnostic`)."""

    benchmarks: tuple[BenchmarkNoise, ...]
    """Largest jitter first; those with too few checkpoints are omitted."""
    persistence: float
    """Mean of what is known about r, the correlation of the jitter at neighbouring checkpoints."""
    tails: float | None
    """95 % quantile of the second differences divided by that of normal noise; None with too few of them."""
    differences: int
    """Number of second differences behind `tails`."""
    out_of_range: tuple[OutOfRange, ...] = ()
