"""Carry out one plan: serve the checkpoint, score every benchmark, time every load.

    record = run_plan(plan, tools=tools, progress=print)

Whatever fails becomes a value in the record; only a bug or a kill leaves this module as an exception.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from eval_jobs.errors import TrackerError
from eval_jobs.identity import benchmark_fingerprint
from eval_jobs.ports import Clock, Engine, Evaluator, Prober, Progress
from eval_jobs.types import (
    Benchmark,
    BenchmarkFailure,
    Endpoint,
    EvalPlan,
    EvalRecord,
    Outcome,
    ProbeFailure,
    ProbeLoad,
    ProbeOutcome,
)


@dataclass(frozen=True, kw_only=True)
class Tools:
    """The ports that a worker works with."""

    engine: Engine
    evaluator: Evaluator
    prober: Prober
    clock: Clock


def run_plan(plan: EvalPlan, *, tools: Tools, progress: Progress) -> EvalRecord:
    """Carry out `plan`; every benchmark and load gets an outcome, a failed one with its reason."""
    started_at = tools.clock.now()
    progress("loading the checkpoint")
    try:
        with tools.engine.serving(plan.checkpoint, plan.serve, progress=progress) as endpoint:
            outcomes = tuple(evaluate_one(b, plan, endpoint, tools.evaluator, progress) for b in plan.suite.benchmarks)
            probes = tuple(probe_one(load, endpoint, tools.prober, progress) for load in plan.loads)
    except TrackerError as error:
        return record_of_failure(plan, error, started_at=started_at, finished_at=tools.clock.now())
    return EvalRecord(
        plan=plan,
        outcomes=outcomes,
        probes=probes,
        engine=endpoint.info,
        started_at=started_at,
        finished_at=tools.clock.now(),
    )


def evaluate_one(
    benchmark: Benchmark, plan: EvalPlan, endpoint: Endpoint, evaluator: Evaluator, progress: Progress
) -> Outcome:
    """Score one benchmark; a failure is a value, so that the others still run."""
    try:
        return evaluator.evaluate(benchmark, plan.suite, endpoint, plan_id=plan.id, progress=progress)
    except TrackerError as error:
        return _benchmark_failure(benchmark, plan, error)


def probe_one(load: ProbeLoad, endpoint: Endpoint, prober: Prober, progress: Progress) -> ProbeOutcome:
    """Time one load; a failure is a value."""
    progress(f"probing latency: {load.name}")
    try:
        return prober.probe(endpoint, load)
    except TrackerError as error:
        return _probe_failure(load, error)


def record_of_failure(
    plan: EvalPlan, error: TrackerError, *, started_at: datetime, finished_at: datetime
) -> EvalRecord:
    """Build the record of a plan that could not be served at all: every outcome carries the reason."""
    return EvalRecord(
        plan=plan,
        outcomes=tuple(_benchmark_failure(b, plan, error) for b in plan.suite.benchmarks),
        probes=tuple(_probe_failure(load, error) for load in plan.loads),
        engine=None,
        started_at=started_at,
        finished_at=finished_at,
    )


# --- private


def _benchmark_failure(benchmark: Benchmark, plan: EvalPlan, error: TrackerError) -> BenchmarkFailure:
    return BenchmarkFailure(
        benchmark=benchmark.name,
        fingerprint=benchmark_fingerprint(benchmark, plan.suite),
        code=error.code,
        message=error.message,
        hint=error.hint,
        retryable=error.retryable,
    )


def _probe_failure(load: ProbeLoad, error: TrackerError) -> ProbeFailure:
    return ProbeFailure(load=load, code=error.code, message=error.message, hint=error.hint)
