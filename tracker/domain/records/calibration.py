"""What asking one checkpoint twice showed, as it is kept and as it is shown. Frozen values."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from eval_jobs.types import BenchmarkFailure, EngineInfo, EvalPlan


@dataclass(frozen=True, kw_only=True)
class AskedTwice:
    """One benchmark, asked twice of the same checkpoint in the same way: counts and sums, no conclusion.

    Several answers to one sample are averaged first, as for a verdict.
    """

    benchmark: str
    fingerprint: str
    """Of the first pass: `identity.benchmark_fingerprint` of every ordinary evaluation of this benchmark."""
    planned: int
    """Samples that were asked in either pass."""
    samples: int
    """Samples that have a score in both passes."""
    flips: int
    """Of them, those whose score differs."""
    other_texts: int
    """Of them, those with equal scores and another text."""
    squares: float
    """Sum over samples of (second score - first score)^2."""
    largest: float
    """Largest |second score - first score|."""
    first_mean: float
    second_mean: float
    p_shift: float
    """Two-sided p of "both passes have the same mean": a small one says that something besides chance changed."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """All that one calibration showed. Known by the id of its plan."""

    plan: EvalPlan
    engine: EngineInfo | None
    """None when no engine could be started."""
    benchmarks: tuple[AskedTwice, ...]
    failures: tuple[BenchmarkFailure, ...] = ()
    """Benchmarks that gave no result in one of the passes, or too few scores."""
    started_at: datetime
    finished_at: datetime


class Fitness(StrEnum):
    """Whether what repeating an evaluation changes leaves the smallest effect that counts to be seen."""

    FIT = "fit"
    """Shown to change less than `policy.min_effect`."""
    UNFIT = "unfit"
    """Shown to change more."""
    UNSURE = "unsure"
    """Too few samples to show either."""


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """What repeating the evaluation alone does to a benchmark: shown beside every difference of scores."""

    benchmark: str
    samples: int
    flips: int
    flip_rate_low: float
    """95 % interval of the share of samples that flip; never of width 0."""
    flip_rate_high: float
    other_texts: int
    noise: float
    """Standard deviation of the mean score that decoding alone causes, in score units."""
    noise_low: float
    """95 % interval of `noise`."""
    noise_high: float
    shift: float
    """Second mean minus first, where chance does not explain it; else 0."""
    fitness: Fitness
    min_effect: float
    """What `fitness` was held to."""
    run_id: str
    step: int
    """Of the checkpoint that was asked twice."""
    engine: str
    """Name and version."""
    measured_at: datetime
    stale: str = ""
    """What has changed since, so that it no longer holds; empty: it holds."""
