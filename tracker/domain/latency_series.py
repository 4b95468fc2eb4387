"""Which measurements belong together, and what each of them says. Pure.

A series is one run on one machine, one engine of one version, one serving, one load and one reference. A change of any
begins a new one: its latencies say nothing about the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache

import numpy as np

from eval_jobs.identity import content_hash, serve_settings
from eval_jobs.types import (
    EvalRecord,
    Percentiles,
    ProbeLoad,
    ProbeResult,
    ReferenceOutcome,
    ReferenceProbe,
    RequestTiming,
)
from tracker.domain.latency_statistics import Contrast, block_starts, paired_contrast
from tracker.domain.latency_types import LatencyMetric
from tracker.domain.statistics import FloatArray

REQUESTS_NEEDED = {0.5: 100, 0.95: 200}
"""By quantile: ten requests beyond it. The 99th percentile would need 1000 and is shown only."""

Key = tuple[LatencyMetric, float]


def earlier_records(record: EvalRecord, records: Sequence[EvalRecord]) -> tuple[EvalRecord, ...]:
    """Return those of the same run with a lower step, in order; a late checkpoint is judged where it belongs."""
    run_id, step = record.plan.checkpoint.run_id, record.plan.checkpoint.step
    found = (r for r in records if r.plan.checkpoint.run_id == run_id and r.plan.checkpoint.step < step)
    return tuple(sorted(found, key=lambda r: (r.plan.checkpoint.step, r.finished_at, r.plan.id)))


def series_of(record: EvalRecord) -> str:
    """Return the name of the series, but for load and reference; equal names may be compared."""
    engine = record.engine
    where = None if engine is None else [engine.name, engine.version, engine.machine]
    return content_hash([where, serve_settings(record.plan.serve)])


def probe_of(record: EvalRecord, load: ProbeLoad) -> ProbeResult | None:
    """Return what was timed under exactly this load, or None."""
    return next((p for p in record.probes if p.load == load and isinstance(p, ProbeResult)), None)


def reference_outcome_of(record: EvalRecord, load: ProbeLoad) -> ReferenceOutcome | None:
    """Return the comparison under exactly this load, a failed one included; None when none was asked for."""
    return next((p for p in record.reference_probes if p.load == load), None)


def reference_probe_of(record: EvalRecord, like: ReferenceProbe) -> ReferenceProbe | None:
    """Return the comparison with the same reference under the same load, or None."""
    found = reference_outcome_of(record, like.load)
    if not isinstance(found, ReferenceProbe) or found.reference_digest != like.reference_digest:
        return None
    return found


def paired_times(probe: ReferenceProbe, metric: LatencyMetric) -> tuple[FloatArray, FloatArray]:
    """Return the times of candidate and reference in milliseconds, both of shape (pairs,), where both have one."""
    sides = zip(probe.candidate, probe.reference, strict=True)
    pairs = [(time_of(candidate, metric), time_of(reference, metric)) for candidate, reference in sides]
    known = np.array([(c, r) for c, r in pairs if c and r], dtype=np.float64).reshape(-1, 2)
    return known[:, 0], known[:, 1]


@lru_cache(maxsize=1024)
def contrasts_of(probe: ReferenceProbe, plan_id: str) -> Mapping[Key, Contrast]:
    """Return every contrast that has requests enough. `plan_id` seeds the draws: a record always says the same.

    Kept, because every later checkpoint of the run asks for it again.
    """
    seed = int(content_hash([plan_id, asdict(probe.load)]), 16)
    found: dict[Key, Contrast] = {}
    for metric in LatencyMetric:
        candidate, reference = paired_times(probe, metric)
        starts = block_starts(candidate.size, seed) if candidate.size >= min(REQUESTS_NEEDED.values()) else None
        for quantile, needed in REQUESTS_NEEDED.items():
            if starts is not None and candidate.size >= needed:
                found[metric, quantile] = paired_contrast(candidate, reference, quantile, starts)
    return found


def time_of(timing: RequestTiming, metric: LatencyMetric) -> float | None:
    """Return one time of a request in milliseconds; None where it has none."""
    if metric is LatencyMetric.TTFT:
        return timing.ttft_ms
    return timing.tpot_ms if metric is LatencyMetric.TPOT else timing.e2e_ms


def quantile_of(probe: ProbeResult, metric: LatencyMetric, quantile: float) -> float | None:
    """Return a quantile of a load in milliseconds; None where nothing was timed."""
    times: dict[LatencyMetric, Percentiles | None] = {
        LatencyMetric.TTFT: probe.ttft_ms,
        LatencyMetric.TPOT: probe.tpot_ms,
        LatencyMetric.E2E: probe.e2e_ms,
    }
    found = times[metric]
    if found is None:
        return None
    return (found.p50 if quantile == 0.5 else found.p95) or None
