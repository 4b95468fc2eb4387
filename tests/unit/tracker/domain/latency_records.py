"""Records of one made-up run that were only timed: alone, or interleaved with a reference."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from eval_jobs.identity import make_plan
from eval_jobs.probe.latency import percentiles
from eval_jobs.types import (
    Checkpoint,
    EngineInfo,
    EvalRecord,
    ProbeLoad,
    ProbeResult,
    ReferenceProbe,
    RequestTiming,
    ServeSpec,
    Suite,
)
from tests.records import checkpoint_of
from tracker.domain.scores.matrix import FloatArray

NOW = datetime(2026, 3, 14, 9, 0, tzinfo=UTC)
LOAD = ProbeLoad(requests=100)
ENGINE = EngineInfo(name="vllm", version="0.32.1", load_method="cold", load_s=20.0, log="", machine="m1")
REFERENCE_STEP = 0


def checkpoint(step: int, *, run_id: str = "run") -> Checkpoint:
    return replace(checkpoint_of(run_id, step), digest=f"d{step}", ready_at=NOW)


def interleaved(step: int, candidate_ms: Sequence[float], reference_ms: Sequence[float]) -> EvalRecord:
    """A record whose E2E times are given; TTFT is a fifth of them and TPOT a fortieth."""
    probe = ReferenceProbe(
        load=LOAD,
        reference_digest=f"d{REFERENCE_STEP}",
        reference_step=REFERENCE_STEP,
        candidate=timings(candidate_ms),
        reference=timings(reference_ms),
        first_pairs=len(candidate_ms) // 2,
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


@dataclass(frozen=True, kw_only=True)
class Machine:
    """How times scatter that no model is to blame for, as standard deviations of their logarithm."""

    requests: float = 0.1
    """From request to request."""
    starts: float = 0.01
    """From one start of the engine to the next."""
    load: float = 0.02
    """Of what else the machine does, which changes slowly: a memory of 50 requests."""
    days: float = 0.06
    """From checkpoint to checkpoint."""
    stalls: float = 0.02
    """Share of requests that stall."""


def session_ms(
    rng: np.random.Generator, *, slow: float = 1.0, requests: int = 200, machine: Machine | None = None
) -> tuple[FloatArray, FloatArray]:
    """Candidate and reference of one checkpoint, `slow` times the reference, from blocks A B B A of three starts."""
    machine = machine or Machine()
    half, total = requests // 2, 2 * requests
    log_times = math.log(200) + machine.days * rng.standard_t(4) / math.sqrt(2) + _load(rng, total, machine.load)
    log_times += np.repeat(machine.starts * rng.standard_normal(3), [half, requests, half])
    log_times += machine.requests * rng.standard_normal(total)
    times = np.exp(log_times) * (1 + np.where(rng.random(total) < machine.stalls, rng.pareto(2.2, total), 0))
    candidate = np.concatenate([times[:half], times[-half:]])
    return slow * candidate, times[half:-half]


def _load(rng: np.random.Generator, count: int, stdev: float) -> FloatArray:
    """An autoregressive series."""
    steps = rng.normal(0, stdev * math.sqrt(1 - 0.98**2), count)
    load = np.empty(count)
    load[0] = rng.normal(0, stdev)
    for i in range(1, count):
        load[i] = 0.98 * load[i - 1] + steps[i]
    return load
