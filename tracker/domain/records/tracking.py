"""Values written to a tracking store, between a record and MLflow. Frozen; built by `tracking`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from eval_jobs.types import Checkpoint, SampleScore
from tracker.domain.records.types import Report, VerdictWord

NO_SERIES: Mapping[str, int] = {}
"""Every benchmark is in its first series."""


@dataclass(frozen=True, kw_only=True)
class TrackedMetric:
    """One number on the step axis."""

    key: str
    value: float
    step: int
    timestamp_ms: int
    """Unix time in milliseconds; of two values at one step, the later one is the newer."""
    dataset: str = ""
    """Name of the dataset of a score, one of the batch's datasets; empty for all other metrics."""


@dataclass(frozen=True, kw_only=True)
class TrackedDataset:
    """Dataset of a score: one benchmark with its settings."""

    name: str
    """The benchmark's own name, unmapped."""
    digest: str
    """The benchmark's fingerprint: scores of different digests are not comparable."""
    source: str
    """Adapter and data."""


@dataclass(frozen=True, kw_only=True)
class TrackedVerdict:
    """A verdict as one row of a table."""

    benchmark: str
    key: str
    """Name of the benchmark in metric and tag keys."""
    step: int
    word: VerdictWord
    score: float | None
    change: float | None
    """Delta of the open loss, else of the deciding comparison; None without either."""
    baseline: str
    """Its baseline, such as `step 600` or `peak, steps 510 to 600`; empty without one."""
    digest: str
    """Digest of the checkpoint."""


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
    """Conclusions about the checkpoint."""
    verdicts: tuple[TrackedVerdict, ...]
    samples: tuple[TrackedSamples, ...]
    report: Report
    report_path: str
    """Relative path of the JSON file that holds `report`."""
    left: tuple[tuple[int, str], ...] = ()
    """Step and digest of the run's checkpoints that training left behind."""


@dataclass(frozen=True, kw_only=True)
class CurveBatch:
    """Points of training curves, first seen at `checkpoint`."""

    checkpoint: Checkpoint
    points: tuple[TrackedMetric, ...]
    losses: Mapping[int, float] = field(default_factory=dict)
    """Training losses on disk by step, as evidence of which run is the trainer's: the points may be known already."""


@dataclass(frozen=True, kw_only=True)
class LiveCurveBatch:
    """Points of training curves, read from the logs of a run that may have no checkpoint yet."""

    run_id: str
    at_ms: int
    """Unix time at which they were queued."""
    points: tuple[TrackedMetric, ...]


class IncidentKind(StrEnum):
    """What is shown of a run beside its newest verdicts."""

    TRAINING = "incidents"
    """Incidents of the training."""
    LOSS = "open_losses"
    """Losses that are open, whatever settings the newest checkpoint was evaluated with."""


@dataclass(frozen=True, kw_only=True)
class IncidentsBatch:
    """The incidents of a run's training, or its open losses, as known now."""

    run_id: str
    kind: IncidentKind = IncidentKind.TRAINING
    at_ms: int
    """Unix time at which they were queued."""
    incidents: tuple[str, ...]
    """In words, newest first."""


@dataclass(frozen=True, kw_only=True)
class TrainerFacts:
    """What a trainer left on disk about its run. All texts are short."""

    name: str = ""
    """The trainer's own name for the run; empty if it left none."""
    params: Mapping[str, str] = field(default_factory=dict)
    """Learning rate, seed and the like."""
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FactsBatch:
    """What is known of the training at `checkpoint`."""

    checkpoint: Checkpoint
    facts: TrainerFacts


@dataclass(frozen=True, kw_only=True)
class SweepBatch:
    """Result of one plan of a sweep: a separate MLflow run next to the sweep's other runs, below the training run."""

    plan_id: str
    checkpoint: Checkpoint
    sweep: str
    run_name: str
    """Target and variant, as text."""
    params: Mapping[str, str]
    """Generation settings, the variant, and what was evaluated: sweep, target, step and model."""
    tags: Mapping[str, str]
    metrics: tuple[TrackedMetric, ...]
    datasets: tuple[TrackedDataset, ...]
    samples: tuple[TrackedSamples, ...]
    started_ms: int
    """Unix time."""
    ended_ms: int


@dataclass(frozen=True, kw_only=True)
class Champion:
    """A checkpoint that an alias points to."""

    alias: str
    """`champion`, or `best-<benchmark>` in characters that a registry accepts."""
    checkpoint: Checkpoint
    plan_id: str
    """Plan that measured it."""
    reason: str
    """One sentence for display."""


@dataclass(frozen=True, kw_only=True)
class ChampionBatch:
    """Checkpoints that a run's aliases point to, as known after `checkpoint`."""

    checkpoint: Checkpoint
    champions: tuple[Champion, ...]


@dataclass(frozen=True, kw_only=True)
class RejectedItem:
    """A result that the tracking store rejected so often that it was set aside."""

    run_id: str
    reason: str
    """The store's own words."""


LiveItem = LiveCurveBatch | IncidentsBatch
"""Items of a run that may have no checkpoint yet."""
TrackingItem = TrackingBatch | CurveBatch | LiveItem | FactsBatch | SweepBatch | ChampionBatch


def run_of(item: TrackingItem) -> str:
    """Return the id of the training run that an item belongs to."""
    return item.run_id if isinstance(item, LiveCurveBatch | IncidentsBatch) else item.checkpoint.run_id
