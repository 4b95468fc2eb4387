"""What is read from the files of other programs before it becomes records. Frozen values."""

from dataclasses import dataclass
from datetime import datetime

from eval_jobs.types import Benchmark, EngineInfo, Outcome, ProbeResult
from tracker.domain.records.imported import IMPORTED


@dataclass(frozen=True, kw_only=True)
class Given:
    """What a person and the file system say about a file, beside what is in it."""

    source: str
    """Path."""
    names: tuple[str, ...]
    """Of the file and of the folders around it, as far as they were named, the nearest first."""
    modified_at: datetime
    """Of the file: for those that do not say when they were measured."""
    step: int | None = None
    """None: the names or the file say it."""
    metrics: tuple[str, ...] = ()
    """Wanted ones, the dearest first: `acc_norm` or `exact_match,flexible-extract`."""


@dataclass(frozen=True, kw_only=True)
class ImportedBenchmark:
    """One benchmark at one checkpoint."""

    benchmark: Benchmark
    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """Something in a file that is not imported, and why."""

    source: str
    name: str
    """Of the benchmark, the metric or the file."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """What one file, or one folder of an evaluation, says about one checkpoint."""

    source: str
    step: int
    model: str
    """As the file names it; empty: it does not."""
    measured_at: datetime
    engine: EngineInfo
    """What measured it; of probes, what answered them."""
    measured: tuple[ImportedBenchmark, ...] = ()
    probes: tuple[ProbeResult, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


def engine_of(name: str, version: str = "") -> EngineInfo:
    """Return what is known of a program that measured for others."""
    return EngineInfo(name=name, version=version, load_method=IMPORTED, load_s=0.0, log="")
