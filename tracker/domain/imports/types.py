"""Contents of files of other programs, before they become records. Frozen values."""

from dataclasses import dataclass
from datetime import datetime

from eval_jobs.identity import benchmark_fingerprint
from eval_jobs.types import Benchmark, EngineInfo, EvalResult, Outcome, ProbeResult, Suite
from tracker.domain.records.imported import IMPORTED


@dataclass(frozen=True, kw_only=True)
class Given:
    """What is known about a file from the user and the file system, in addition to its contents."""

    source: str
    """Path."""
    names: tuple[str, ...]
    """Names of the file and its parent folders, as far as they were given, nearest first."""
    modified_at: datetime
    """Modification time of the file, used if the file contains no time of measurement."""
    step: int | None = None
    """None if the names or the file determine it."""
    metrics: tuple[str, ...] = ()
    """Wanted metrics, most preferred first: `acc_norm` or `exact_match,flexible-extract`."""


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
    """Name of the benchmark, the metric or the file."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """Contents of one file, or of one evaluation's folder, for one checkpoint."""

    source: str
    step: int
    model: str
    """Name of the model in the file; empty if there is none."""
    measured_at: datetime
    engine: EngineInfo
    """Program that measured it; for probes, the engine that served the requests."""
    measured: tuple[ImportedBenchmark, ...] = ()
    probes: tuple[ProbeResult, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    metrics: tuple[str, ...] = ()
    """Metrics of the file that can be asked for, with and without their filters; empty if each task has only one."""


def result_without_samples(benchmark: Benchmark, metric: str) -> EvalResult:
    """Return the result of a benchmark that is identified by its own settings alone."""
    return EvalResult(
        benchmark=benchmark.name,
        fingerprint=benchmark_fingerprint(benchmark, Suite(name="", benchmarks=(benchmark,))),
        metric=metric,
        samples=(),
        duration_s=0.0,
        higher_is_better=benchmark.higher_is_better,
    )


def engine_of(name: str, version: str = "") -> EngineInfo:
    """Return the engine info of an external program."""
    return EngineInfo(name=name, version=version, load_method=IMPORTED, load_s=0.0, log="")
