"""Records of one made-up run that were only timed: alone, or interleaved with a reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from eval_jobs.identity import make_plan
from eval_jobs.probe.latency import percentiles
from eval_jobs.types import (
    Checkpoint,
    CheckpointFormat,
    EngineInfo,
    EvalRecord,
    ProbeLoad,
    ProbeResult,
    ReferenceProbe,
    RequestTiming,
    ServeSpec,
    Suite,
)
from tracker.domain.statistics import FloatArray

NOW = datetime(2026, 3, 14, 9, 0, tzinfo=UTC)
LOAD = ProbeLoad(requests=100)
ENGINE = EngineInfo(name="vllm", version="0.32.1", load_method="cold", load_s=20.0, log="", machine="m1")
REFERENCE_STEP = 0


def checkpoint(step: int, *, run_id: str = "run") -> Checkpoint:
    return Checkpoint(
        run_id=run_id,
        step=step,
        uri=f"/pins/{step}",
        source_uri=f"/out/checkpoint-{step}",
        format=CheckpointFormat.FULL,
        digest=f"d{step}",
        ready_at=NOW,
    )


def interleaved(step: int, candidate_ms: Sequence[float], reference_ms: Sequence[float]) -> EvalRecord:
    """A record whose E2E times are given; TTFT is a fifth of them and TPOT a fortieth."""
    probe = ReferenceProbe(
        load=LOAD,
        reference_digest=f"d{REFERENCE_STEP}",
        reference_step=REFERENCE_STEP,
        candidate=timings(candidate_ms),
        reference=timings(reference_ms),
        dropped=0,
    )
    record = alone(step, candidate_ms)
    plan = replace(record.plan, reference=checkpoint(REFERENCE_STEP))
    return replace(record, plan=plan, reference_probes=(probe,))


def alone(step: int, times_ms: Sequence[float], *, load: ProbeLoad = LOAD) -> EvalRecord:
    """A record without a reference, its times as in `interleaved`."""
    times = [float(t) for t in times_ms]
    probe = ProbeResult(
        load=load,
        ttft_ms=percentiles([t / 5 for t in times]),
        tpot_ms=percentiles([t / 40 for t in times]),
        itl_ms=None,
        e2e_ms=percentiles(times),
        completed=len(times),
        failed=0,
        duration_s=1.0,
        output_tokens=32 * len(times),
        requests_per_s=1.0,
        output_tokens_per_s=32.0,
        requests=timings(times),
    )
    return EvalRecord(
        plan=make_plan(checkpoint(step), Suite(name="s", benchmarks=()), ServeSpec(), (load,)),
        outcomes=(),
        probes=(probe,),
        engine=ENGINE,
        started_at=NOW,
        finished_at=NOW,
    )


def timings(times_ms: Sequence[float]) -> tuple[RequestTiming, ...]:
    return tuple(
        RequestTiming(position=i, ttft_ms=t / 5, tpot_ms=t / 40, e2e_ms=t) for i, t in enumerate(map(float, times_ms))
    )


def with_engine(record: EvalRecord, **changes: str) -> EvalRecord:
    assert record.engine is not None
    return replace(record, engine=replace(record.engine, **changes))  # type: ignore[arg-type]


def session_ms(
    rng: np.random.Generator, *, slow: float = 1.0, requests: int = 200, between_starts: float = 0.01
) -> tuple[FloatArray, FloatArray]:
    """Candidate and reference of one session, `slow` times the reference.

    A machine of the day's mood, load that changes slowly, requests that scatter by 25 %, a stall in one of fifty, and
    `between_starts`: what differs between two starts of the same engine, as a standard deviation.
    """
    mood = 200 * np.exp(0.06 * rng.standard_t(4) / np.sqrt(2))
    load = np.exp(_slow(rng, 2 * requests))
    scatter = np.exp(0.25 * rng.standard_normal(2 * requests))
    stalls = 1 + np.where(rng.random(2 * requests) < 0.02, rng.pareto(2.2, 2 * requests), 0)
    times = mood * load * scatter * stalls
    return slow * np.exp(between_starts * rng.standard_normal()) * times[::2], times[1::2]


def _slow(rng: np.random.Generator, count: int) -> FloatArray:
    """An autoregressive load with standard deviation 8 % and memory of about 50 requests."""
    steps = rng.normal(0, 0.08 * np.sqrt(1 - 0.98**2), count)
    load = np.empty(count)
    load[0] = rng.normal(0, 0.08)
    for i in range(1, count):
        load[i] = 0.98 * load[i - 1] + steps[i]
    return load
