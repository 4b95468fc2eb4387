"""Series of comparable latency measurements, and the contrasts of each. Pure.

A series is one run on one machine, with one engine version, serving, load and reference. A change of any starts a new
series: it changes latencies for other reasons than the model.
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
from tracker.domain.latency.statistics import LatencyContrast, block_starts, paired_contrast
from tracker.domain.records.types import LatencyMetric
from tracker.domain.scores.matrix import FloatArray

REQUESTS_NEEDED = {0.5: 100, 0.95: 200}
"""By quantile: at least ten requests beyond it. The 99th percentile would need 1000 and is only displayed."""

Key = tuple[LatencyMetric, float]


@dataclass(frozen=True, kw_only=True)
class PairedBlock:
    """Times of paired requests in milliseconds, both of shape (pairs,), in order of sending."""

    candidate: FloatArray
    reference: FloatArray


def earlier_records(record: EvalRecord, records: Sequence[EvalRecord]) -> tuple[EvalRecord, ...]:
    """Return those of the same run with a lower step, in order: a late checkpoint is compared with its own past."""
    run_id, step = record.plan.checkpoint.run_id, record.plan.checkpoint.step
    found = (r for r in records if r.plan.checkpoint.run_id == run_id and r.plan.checkpoint.step < step)
    return tuple(sorted(found, key=lambda r: (r.plan.checkpoint.step, r.finished_at, r.plan.id)))


def series_of(record: EvalRecord) -> str:
    """Return the hash of the series except load and reference; records with equal hashes may be compared."""
    engine, serve = record.engine, record.plan.serve
    where = None if engine is None else [engine.name, engine.version, engine.machine]
    # Settings that change latency but no score.
    paces = [serve.niceness, serve.gpu_memory_utilization, engine is not None and engine.is_batch_invariant]
    return content_hash([where, serve_settings(serve), paces])


def probe_of(record: EvalRecord, load: ProbeLoad) -> ProbeResult | None:
    """Return the result under exactly this load, or None."""
    return next((p for p in record.probes if p.load == load and isinstance(p, ProbeResult)), None)


def reference_outcome_of(record: EvalRecord, load: ProbeLoad) -> ReferenceOutcome | None:
    """Return the comparison under exactly this load, also a failed one; None if none was requested."""
    return next((p for p in record.reference_probes if p.load == load), None)


def reference_probe_of(record: EvalRecord, like: ReferenceProbe) -> ReferenceProbe | None:
    """Return the comparison with the same reference under the same load, or None."""
    found = reference_outcome_of(record, like.load)
    if not isinstance(found, ReferenceProbe) or found.reference_digest != like.reference_digest:
        return None
    return found


def paired_blocks(probe: ReferenceProbe, metric: LatencyMetric) -> tuple[PairedBlock, PairedBlock]:
    """Return the times of both blocks in milliseconds, for pairs with a time on both sides."""
    pairs = list(zip(probe.candidate, probe.reference, strict=True))
    return _block(pairs[: probe.first_pairs], metric), _block(pairs[probe.first_pairs :], metric)


@lru_cache(maxsize=1024)
def contrasts_of(probe: ReferenceProbe, plan_id: str) -> Mapping[Key, LatencyContrast]:
    """Return every contrast with enough requests. `plan_id` seeds the draws, so a record always gives the same result.

    Cached, because every later checkpoint of the run needs it again.
    """
    seed = int(content_hash([plan_id, asdict(probe.load)]), 16)
    found: dict[Key, LatencyContrast] = {}
    for metric in LatencyMetric:
        blocks = paired_blocks(probe, metric)
        for quantile, needed in REQUESTS_NEEDED.items():
            if has_enough(blocks, needed):
                contrasts = []
                for i, block in enumerate(blocks):
                    starts = block_starts(block.candidate.size, seed + i)
                    contrasts.append(paired_contrast(block.candidate, block.reference, quantile, starts))
                found[metric, quantile] = LatencyContrast(*contrasts)
    return found


def has_enough(blocks: tuple[PairedBlock, PairedBlock], needed: int) -> bool:
    """Return whether there are `needed` pairs, and in each block at least half of its share."""
    sizes = [block.candidate.size for block in blocks]
    return sum(sizes) >= needed and min(sizes) >= needed // 4


def time_of(timing: RequestTiming, metric: LatencyMetric) -> float | None:
    """Return one time of a request in milliseconds; None if it has none."""
    time_ms: float | None = getattr(timing, f"{metric}_ms")
    return time_ms


def percentiles_of(probe: ProbeResult, metric: LatencyMetric) -> Percentiles | None:
    """Return the percentiles of a load in milliseconds; None if nothing was timed."""
    percentiles: Percentiles | None = getattr(probe, f"{metric}_ms")
    return percentiles


def quantile_of(probe: ProbeResult, metric: LatencyMetric, quantile: float) -> float | None:
    """Return a quantile of a load in milliseconds; None if nothing was timed."""
    found = percentiles_of(probe, metric)
    if found is None:
        return None
    return (found.p50 if quantile == 0.5 else found.p95) or None


def _block(pairs: Sequence[tuple[RequestTiming, RequestTiming]], metric: LatencyMetric) -> PairedBlock:
    values = [(time_of(candidate, metric), time_of(reference, metric)) for candidate, reference in pairs]
    known = np.array([(c, r) for c, r in values if c and r], dtype=np.float64).reshape(-1, 2)
    return PairedBlock(candidate=known[:, 0], reference=known[:, 1])
