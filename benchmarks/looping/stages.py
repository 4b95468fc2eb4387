"""Where every second of one checkpoint went: what was seen from outside, and what its record says."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.looping.tracker_way import Passage
from eval_jobs.types import EvalRecord, EvalResult, ProbeResult


def stages_of(passage: Passage, record: EvalRecord) -> Mapping[str, float]:
    """Return the seconds of each stage in their order; together they are the time from the last byte to MLflow."""
    at = passage.at_s
    whole_s = (record.finished_at - record.started_at).total_seconds()
    load_s = record.engine.load_s if record.engine else 0.0
    probe_s = sum(probe.duration_s for probe in record.probes if isinstance(probe, ProbeResult))
    evaluation_s = _evaluation_s(record, whole_s - load_s - probe_s)
    return {
        "find: complete and held": at.get("held", at["pinned"]),
        "settle, hash, pin": at["pinned"] - at.get("held", at["pinned"]),
        "queue: plan added": at["queued"] - at["pinned"],
        "queue: claimed": at["claimed"] - at["queued"],
        "engine: weights loaded": load_s,
        "evaluation": evaluation_s,
        "probe: timed requests": probe_s,
        "worker: all else": whole_s - load_s - evaluation_s - probe_s,
        "record handed in": at["finished"] - at["claimed"] - whole_s,
        "judged": at["judged"] - at["finished"],
        "MLflow": at["sent"] - at["judged"],
    }


# --- private


def _evaluation_s(record: EvalRecord, room_s: float) -> float:
    """Return how long the benchmarks took: one after the other, or at once when together they had no room."""
    durations = [outcome.duration_s for outcome in record.outcomes if isinstance(outcome, EvalResult)]
    return sum(durations) if sum(durations) <= room_s else max(durations, default=0.0)
