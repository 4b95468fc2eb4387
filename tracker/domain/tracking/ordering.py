"""Which items for the tracking store wait for each other, and which replace each other. Pure."""

from collections.abc import Mapping
from dataclasses import replace

from eval_jobs.identity import content_hash
from eval_jobs.types import Checkpoint
from tracker.domain.records.tracking import ChampionBatch, IncidentsBatch, SweepBatch, TrackingBatch, TrackingItem


def checkpoint_key(checkpoint: Checkpoint) -> str:
    """Return the key of the metrics of a checkpoint, whatever plan measured them.

    A benchmark whose data or settings were changed is measured again under another plan and the same name; a store
    accepts one value for a name, checkpoint and time.
    """
    return content_hash([checkpoint.run_id, checkpoint.step, checkpoint.digest])


def waits_for(item: TrackingItem) -> set[str]:
    """Return keys of older items that must be sent before this one."""
    if isinstance(item, ChampionBatch):
        return delays(item) | {checkpoint_key(champion.checkpoint) for champion in item.champions}
    return delays(item)


def delays(item: TrackingItem) -> set[str]:
    """Return keys of newer items that must be sent after this one."""
    if isinstance(item, TrackingBatch):
        return {checkpoint_key(item.checkpoint)}
    if isinstance(item, SweepBatch):
        return {item.plan_id}
    if isinstance(item, ChampionBatch):
        return {f"aliases of {item.checkpoint.run_id}"}
    if isinstance(item, IncidentsBatch):
        return {f"{item.kind} of {item.run_id}"}
    return set()


def is_replaced(item: TrackingItem, newer: TrackingItem) -> bool:
    """Return whether `newer` describes the same as a rejected item, which would restore old values if sent later."""
    if isinstance(item, TrackingBatch) and isinstance(newer, TrackingBatch):
        is_same = checkpoint_key(item.checkpoint) == checkpoint_key(newer.checkpoint)
        return is_same and not {m.key for m in item.metrics}.isdisjoint(m.key for m in newer.metrics)
    return type(item) is type(newer) and not delays(item).isdisjoint(delays(newer))


def newer_than(batch: TrackingBatch, queued: Mapping[str, tuple[float, int]]) -> TrackingBatch:
    """Return a batch with the times of equal values that were queued, and later times than those of other values.

    `queued` are values and times in ms by key. A cost stays that of the first evaluation: later ones may ask only what
    was missing.
    """
    metrics = []
    for metric in batch.metrics:
        value, time_ms = queued.get(metric.key, (metric.value, metric.timestamp_ms))
        if metric.key.startswith("cost/"):
            metrics.append(replace(metric, value=value, timestamp_ms=time_ms))
        else:
            metrics.append(replace(metric, timestamp_ms=time_ms + (metric.value != value)))
    return replace(batch, metrics=tuple(metrics))
