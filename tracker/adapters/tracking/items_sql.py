"""Items of the outbox: their keys, and what was queued before.

An item never changes after it was queued. A key says what its item is about, and is queued once.
"""

import zlib
from collections.abc import Sequence
from dataclasses import replace

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import Connection, select

from eval_jobs.errors import StoreError
from eval_jobs.identity import content_hash
from eval_jobs.queue.database_sql import add_row, insert_into
from eval_jobs.types import EvalRecord
from tracker.adapters.database.tables import ITEMS, POINTS, VALUES
from tracker.domain.health.logs.thinning import not_among
from tracker.domain.records import tracking
from tracker.domain.records.types import CurvePoint, Report
from tracker.domain.tracking.ordering import checkpoint_key, newer_than
from tracker.domain.tracking.trainer_run import ROUNDING
from tracker.domain.verdicts.out_of_order import told_by_benchmark

_WORDS_CHARS = 12

ITEM: TypeAdapter[tracking.TrackingItem] = TypeAdapter(tracking.TrackingItem)
Curves = tracking.CurveBatch | tracking.LiveCurveBatch


def record_key(connection: Connection, record: EvalRecord, report: Report) -> str | None:
    """Return the key of an item for a record with these verdicts, or None if its last item has the same verdicts.

    Verdicts may change and change back: the last item then equals the first one, and is sent all the same.
    """
    of_record = f"record:{record.plan.id}:{record.finished_at.timestamp():.6f}"
    key = f"{of_record}:{content_hash(told_by_benchmark(report))[:_WORDS_CHARS]}"
    query = select(ITEMS.c.key).where(ITEMS.c.key.startswith(of_record)).order_by(ITEMS.c.id)
    keys = connection.scalars(query).all()
    if keys and keys[-1].startswith(key):
        return None
    return f"{key}:{len(keys)}" if key in keys else key


def queue_item(connection: Connection, key: str, item: tracking.TrackingItem) -> bool:
    """Queue the item and return True; return False if its key is known."""
    body = zlib.compress(ITEM.dump_json(item), level=3)
    row = {"key": key, "body": body, "sent": False, "refused": 0, "retry_at_s": 0.0, "run_id": tracking.run_of(item)}
    return add_row(connection, ITEMS, row)


def queue_if_changed(connection: Connection, kind: str, item: tracking.TrackingItem, facts: Sequence[object]) -> None:
    """Queue what is as `facts` say now, unless the last item of its kind and run said so, or there never was one."""
    of_run = f"{kind}:{content_hash(tracking.run_of(item))[:_WORDS_CHARS]}:"
    key = f"{of_run}{content_hash(list(facts))[:_WORDS_CHARS]}"
    query = select(ITEMS.c.key).where(ITEMS.c.key.startswith(of_run)).order_by(ITEMS.c.id)
    keys = connection.scalars(query).all()
    is_known = keys[-1].startswith(key) if keys else not facts
    if not is_known:  # facts may change and change back: the last item counts
        queue_item(connection, f"{key}:{len(keys)}", item)


def with_evidence(
    connection: Connection, run_id: str, evidence: tracking.CurveBatch, parts: list[Curves]
) -> list[Curves]:
    """Queue a run's evidence once, with its first part or alone if its logs had all points; return the other parts."""
    first = replace(evidence, points=parts[0].points) if parts else evidence
    return parts[1:] if queue_item(connection, f"losses:{content_hash(run_id)}", first) else parts


def newer_than_queued(connection: Connection, batch: tracking.TrackingBatch) -> tracking.TrackingBatch:
    """Return the batch with the times of `ordering.newer_than`."""
    query = select(VALUES).where(VALUES.c.checkpoint == checkpoint_key(batch.checkpoint))
    return newer_than(batch, {row.key: (row.value, row.timestamp_ms) for row in connection.execute(query)})


def was_queued(connection: Connection, champion: tracking.Champion) -> bool:
    """Return whether the checkpoint was queued for the store: results from before the store was configured were not."""
    known = VALUES.c.checkpoint == checkpoint_key(champion.checkpoint)
    return connection.scalar(select(VALUES.c.key).where(known).limit(1)) is not None


def remember_values(connection: Connection, batch: tracking.TrackingBatch) -> None:
    """Store the values that were queued last for a checkpoint."""
    checkpoint = checkpoint_key(batch.checkpoint)
    rows = [
        {"checkpoint": checkpoint, "key": m.key, "value": m.value, "timestamp_ms": m.timestamp_ms}
        for m in batch.metrics
    ]
    if rows:
        insert = insert_into(connection, VALUES)
        newest = {"value": insert.excluded.value, "timestamp_ms": insert.excluded.timestamp_ms}
        connection.execute(insert.on_conflict_do_update(index_elements=["checkpoint", "key"], set_=newest), rows)


def remember_points(connection: Connection, run_id: str, points: Sequence[CurvePoint]) -> list[CurvePoint]:
    """Store the points not seen before and return them; another process may be storing the same ones.

    A value that differs from a known one of its step by rounding alone is the same point, from another log.
    """
    steps = [point.step for point in points]
    query = select(POINTS.c.key, POINTS.c.step, POINTS.c.value).where(
        POINTS.c.run_id == run_id,
        POINTS.c.key.in_({point.key for point in points}),
        POINTS.c.step.between(min(steps), max(steps)),
    )
    known = (CurvePoint(key=row.key, step=row.step, value=row.value) for row in connection.execute(query))
    new = not_among(points, known, rounding=ROUNDING)
    rows = [{"run_id": run_id, "key": p.key, "step": p.step, "value": p.value} for p in new]
    if not rows:
        return []
    insert = insert_into(connection, POINTS).on_conflict_do_nothing()
    stored = connection.execute(insert.returning(POINTS.c.key, POINTS.c.step, POINTS.c.value), rows)
    fresh = {(row.key, row.step, row.value) for row in stored}
    return [point for point in new if (point.key, point.step, point.value) in fresh]


def read_item(body: bytes) -> tracking.TrackingItem:
    """Return a queued item.

    Raises:
        StoreError: another version of the program wrote it.
    """
    try:
        return ITEM.validate_json(zlib.decompress(body))
    except (zlib.error, ValidationError) as error:
        raise StoreError(
            "cannot read a pending MLflow write", hint="use the version of checkpoint-tracker that wrote it"
        ) from error
