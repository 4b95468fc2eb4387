"""Where every second of one checkpoint went: what was seen from outside, and what its record says."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.looping.tracker_way import Passage
from eval_jobs.types import EvalRecord, ProbeResult


def stages_of(passage: Passage, record: EvalRecord) -> Mapping[str, float]:
    """Return the seconds of each stage in their order; together they are the time from the last byte to MLflow."""
    at, held_s, cost = passage.at_s, passage.at_s.get("held", passage.at_s["pinned"]), record.cost
    if cost is None:
        raise ValueError(f"the record of step {passage.step} does not say what it cost")
    timed_s = sum(probe.duration_s for probe in record.probes if isinstance(probe, ProbeResult))
    return {
        "found: complete and held": held_s,
        "settled, hashed, pinned": at["pinned"] - held_s,
        "plan added": at["queued"] - at["pinned"],
        "plan claimed": at["claimed"] - at["queued"],
        "weights loaded, canaries asked": cost.loading_s,
        "evaluated": cost.evaluating_s,
        "probe: timed requests": timed_s,
        "probe: prompts, warm-up": cost.probing_s - timed_s,
        "record handed in": at["finished"] - at["claimed"] - cost.wall_s,
        "judged": at["judged"] - at["finished"],
        "sent to MLflow": at["sent"] - at["judged"],
    }
