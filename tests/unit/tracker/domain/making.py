"""Builders of small records for tests of the domain."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from eval_jobs.identity import benchmark_fingerprint, make_plan
from eval_jobs.types import (
    Benchmark,
    BenchmarkFailure,
    EvalPlan,
    EvalRecord,
    EvalResult,
    Outcome,
    SampleScore,
    SampleStatus,
    ServeSpec,
    Suite,
)
from tests.records import checkpoint_of

START = datetime(2026, 1, 1, tzinfo=UTC)

Scores = Sequence[float | None]


def samples_of(scores: Scores, clusters: Sequence[str] = ()) -> tuple[SampleScore, ...]:
    """One sample per score; None is an error."""
    return tuple(_sample(i, score, clusters[i] if clusters else "") for i, score in enumerate(scores))


@lru_cache(maxsize=100_000, typed=True)  # simulations make millions of them, and few that differ
def _sample(i: int, score: float | None, cluster_id: str) -> SampleScore:
    return SampleScore(
        sample_id=f"s{i}",
        subset="all",
        score=score,
        status=SampleStatus.ERROR if score is None else SampleStatus.SCORED,
        cluster_id=cluster_id,
        prompt=f"question {i}",
        target=f"target {i}",
        answer=f"answer {score}",
        detail="the server went away" if score is None else "",
    )


def result_of(
    scores: Scores,
    *,
    benchmark: str = "sums",
    fingerprint: str = "f",
    clusters: Sequence[str] = (),
    higher_is_better: bool = True,
) -> EvalResult:
    return EvalResult(
        benchmark=benchmark,
        fingerprint=fingerprint,
        metric="accuracy",
        samples=samples_of(scores, clusters),
        duration_s=1.0,
        higher_is_better=higher_is_better,
    )


def suite_of(names: Sequence[str], *, name: str = "skills", **settings: object) -> Suite:
    benchmarks = tuple(Benchmark(name=n, adapter="exact", **settings) for n in names)  # type: ignore[arg-type]
    return Suite(name=name, benchmarks=benchmarks)


def plan_of(
    step: int,
    suite: Suite,
    *,
    run_id: str = "run",
    digest: str = "",
    serve: ServeSpec | None = None,
    ready_at: datetime = START,
) -> EvalPlan:
    checkpoint = replace(checkpoint_of(run_id, step), digest=digest or f"d{step}", ready_at=ready_at)
    return make_plan(checkpoint, suite, serve or ServeSpec(), ())


def record_of(
    step: int,
    scores: Mapping[str, Scores | BenchmarkFailure],
    *,
    suite: Suite | None = None,
    clusters: Sequence[str] = (),
    digest: str = "",
    serve: ServeSpec | None = None,
    finished_after_s: float | None = None,
    ready_at: datetime | None = None,
) -> EvalRecord:
    """A record of the run `run` with real fingerprints; its checkpoint was ready when it was measured, or before."""
    suite = suite or suite_of(tuple(scores))
    outcomes: list[Outcome] = []
    for b in suite.benchmarks:
        value = scores[b.name]
        if isinstance(value, BenchmarkFailure):
            outcomes.append(value)
        else:
            fingerprint = benchmark_fingerprint(b, suite)
            outcomes.append(
                result_of(
                    value,
                    benchmark=b.name,
                    fingerprint=fingerprint,
                    clusters=clusters,
                    higher_is_better=b.higher_is_better,
                )
            )
    finished_at = START + timedelta(seconds=step if finished_after_s is None else finished_after_s)
    return EvalRecord(
        plan=plan_of(step, suite, digest=digest, serve=serve, ready_at=ready_at or finished_at),
        outcomes=tuple(outcomes),
        probes=(),
        engine=None,
        started_at=START,
        finished_at=finished_at,
    )


def failure_of(benchmark: str = "sums") -> BenchmarkFailure:
    return BenchmarkFailure(
        benchmark=benchmark,
        fingerprint="f",
        code="E-SERVE-DIED",
        message="vLLM ended while loading /pins/7",
        hint="see /logs/7.log",
        retryable=False,
    )
