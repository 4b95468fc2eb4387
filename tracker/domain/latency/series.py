"""Which measurements belong together, and what each of them says. Pure.

A series is one run on one machine, one engine of one version, one serving, one load and one reference. A change of any
begins a new one: its latencies say nothing about the model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
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
from tracker.domain.latency.statistics import BlockContrast, LatencyContrast, block_starts, paired_contrast
from tracker.domain.records.types import LatencyMetric
from tracker.domain.scores.statistics import FloatArray

REQUESTS_NEEDED = {0.5: 100, 0.95: 200}
"""By quantile: ten requests beyond it. The 99th percentile would need 1000 and is shown only."""

Key = tuple[LatencyMetric, float]


@dataclass(frozen=True, kw_only=True)
class PairedBlock:
    """Times of paired requests in milliseconds, both of shape (pairs,), in order of sending."""

    candidate: FloatArray
    reference: FloatArray


def earlier_records(record: EvalRecord, records: Sequence[EvalRecord]) -> tuple[EvalRecord, ...]:
    """Return those of the same run with a lower step, in order; a late checkpoint is judged where it belongs."""
    run_id, step = record.plan.checkpoint.run_id, record.plan.checkpoint.step
    found = (r for r in records if r.plan.checkpoint.run_id == run_id and r.plan.checkpoint.step < step)
    return tuple(sorted(found, key=lambda r: (r.plan.checkpoint.step, r.finished_at, r.plan.id)))


def series_of(record: EvalRecord) -> str:
    """Return the name of the series, but for load and reference; equal names may be compared."""
    engine, serve = record.engine, record.plan.serve
    where = None if engine is None else [engine.name, engine.version, engine.machine]
    # What changes no score, but how fast it comes.
    paces = [serve.niceness, serve.gpu_memory_utilization, engine is not None and engine.is_batch_invariant]
    return content_hash([where, serve_settings(serve), paces])


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


def paired_blocks(probe: ReferenceProbe, metric: LatencyMetric) -> tuple[PairedBlock, PairedBlock]:
    """Return the times of both blocks in milliseconds, where both sides have one."""
    pairs = list(zip(probe.candidate, probe.reference, strict=True))
    return _block(pairs[: probe.first_pairs], metric), _block(pairs[probe.first_pairs :], metric)


@lru_cache(maxsize=1024)
def contrasts_of(probe: ReferenceProbe, plan_id: str) -> Mapping[Key, LatencyContrast]:
    """Return every contrast that has requests enough. `plan_id` seeds the draws: a record always says the same.

    Kept, because every later checkpoint of the run asks for it again.
    """
    seed = int(content_hash([plan_id, asdict(probe.load)]), 16)
    found: dict[Key, LatencyContrast] = {}
    for metric in LatencyMetric:
        blocks = paired_blocks(probe, metric)
        for quantile, needed in REQUESTS_NEEDED.items():
            if has_enough(blocks, needed):
                first, second = (_contrast(block, quantile, seed + i) for i, block in enumerate(blocks))
                found[metric, quantile] = LatencyContrast(first, second)
    return found


def has_enough(blocks: tuple[PairedBlock, PairedBlock], needed: int) -> bool:
    """Say whether there are `needed` pairs, and in neither block less than half of its share."""
    sizes = [block.candidate.size for block in blocks]
    return sum(sizes) >= needed and min(sizes) >= needed // 4


def time_of(timing: RequestTiming, metric: LatencyMetric) -> float | None:
    """Return one time of a request in milliseconds; None where it has none."""
    if metric is LatencyMetric.TTFT:
        return timing.ttft_ms
    if metric is LatencyMetric.TPOT:
        return timing.tpot_ms
    return timing.e2e_ms


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


# --- private


def _block(pairs: Sequence[tuple[RequestTiming, RequestTiming]], metric: LatencyMetric) -> PairedBlock:
    values = [(time_of(candidate, metric), time_of(reference, metric)) for candidate, reference in pairs]
    known = np.array([(c, r) for c, r in values if c and r], dtype=np.float64).reshape(-1, 2)
    return PairedBlock(candidate=known[:, 0], reference=known[:, 1])


def _contrast(block: PairedBlock, quantile: float, seed: int) -> BlockContrast:
    return paired_contrast(block.candidate, block.reference, quantile, block_starts(block.candidate.size, seed))
