"""What is written to a tracking store: the values between a record and MLflow. Frozen; built by `tracking`."""

from collections.abc import Mapping
from dataclasses import dataclass

from eval_jobs.types import Checkpoint, SampleScore
from tracker.domain.records.types import Report, VerdictWord


@dataclass(frozen=True, kw_only=True)
class TrackedMetric:
    """One number on the step axis."""

    key: str
    value: float
    step: int
    timestamp_ms: int
    """Unix time; decides which of two values at one step is the newer one."""
    dataset: str = ""
    """Name of the dataset it was measured on, one of the batch's; empty for latencies and curves."""


@dataclass(frozen=True, kw_only=True)
class TrackedDataset:
    """What a score was measured on: one benchmark with its settings."""

    name: str
    """The benchmark's own name, unmapped."""
    digest: str
    """The benchmark's fingerprint: scores of different digests are not comparable."""
    source: str
    """Adapter and data."""


@dataclass(frozen=True, kw_only=True)
class TrackedVerdict:
    """A verdict, as short as a line of a table."""

    benchmark: str
    key: str
    """Name of the benchmark in metric and tag keys."""
    step: int
    word: VerdictWord
    score: float | None
    change: float | None
    """Of the comparison that decided; None when there was nothing to compare with."""
    baseline: str
    """What it was compared with, `peak, steps 510-600`; empty without a comparison."""
    digest: str
    """Of the checkpoint."""


@dataclass(frozen=True, kw_only=True)
class TrackedSamples:
    """The samples of one benchmark, to be stored as a table."""

    path: str
    """Relative, without a suffix."""
    samples: tuple[SampleScore, ...]


@dataclass(frozen=True, kw_only=True)
class TrackingBatch:
    """Everything that one record adds to a tracking store."""

    plan_id: str
    checkpoint: Checkpoint
    metrics: tuple[TrackedMetric, ...]
    datasets: tuple[TrackedDataset, ...]
    params: Mapping[str, str]
    """Facts of the checkpoint that never change."""
    tags: Mapping[str, str]
    """What was concluded about the checkpoint."""
    verdicts: tuple[TrackedVerdict, ...]
    samples: tuple[TrackedSamples, ...]
    report: Report
    report_path: str
    """Relative path of the JSON file that holds `report`."""
    left: tuple[tuple[int, str], ...] = ()
    """Step and digest of the checkpoints of the run that training left behind."""


@dataclass(frozen=True, kw_only=True)
class CurveBatch:
    """Points of training curves, first seen at `checkpoint`."""

    checkpoint: Checkpoint
    points: tuple[TrackedMetric, ...]


@dataclass(frozen=True, kw_only=True)
class SweepBatch:
    """What one plan of a sweep came to: a run of its own beside the others of its sweep, below the training run."""

    plan_id: str
    checkpoint: Checkpoint
    sweep: str
    run_name: str
    """What was asked and how, in words."""
    params: Mapping[str, str]
    """Every setting of the matrix, and what it was asked of."""
    tags: Mapping[str, str]
    metrics: tuple[TrackedMetric, ...]
    datasets: tuple[TrackedDataset, ...]
    samples: tuple[TrackedSamples, ...]
    started_ms: int
    """Unix time."""
    ended_ms: int


@dataclass(frozen=True, kw_only=True)
class Champion:
    """A checkpoint that an alias names."""

    alias: str
    """`champion`, or `best-<benchmark>` in letters that a registry takes."""
    checkpoint: Checkpoint
    plan_id: str
    """Under which it was measured."""
    reason: str
    """One sentence for a person."""


@dataclass(frozen=True, kw_only=True)
class ChampionBatch:
    """Which checkpoints of a run its aliases name, as known after `checkpoint`."""

    checkpoint: Checkpoint
    champions: tuple[Champion, ...]


TrackingItem = TrackingBatch | CurveBatch | SweepBatch | ChampionBatch
