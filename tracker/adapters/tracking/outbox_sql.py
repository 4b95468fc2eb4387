"""The outbox of the tracking store: results wait in the tracker's own database until they are sent.

    tracking = OutboxTracking(open_database(url), MlflowStore(settings))
    tracking.publish(record, report)    # one transaction; nothing is sent
    waiting = tracking.flush()          # oldest first, in a thread; 0 when everything is sent

An item is marked as sent after the store accepted it: a crash in between sends it again, without duplicates.
An item never changes after it was queued: keys, values and times are fixed in the same transaction.

A newer record of a plan, such as a repair, is a separate item, and so is a record whose verdicts have changed. Its
metrics have the times of `ordering.newer_than`: an equal one stays the same row, and a store shows the newest.

Items of one checkpoint are sent in order, and aliases after the records of their checkpoints. An item that the store
rejects `MAX_REFUSALS` times is set aside. The next process, or this one an hour later, tries it once more.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import ColumnElement, Engine, Row, Update, and_, func, select, true, update

from eval_jobs.backoff import Backoff
from eval_jobs.errors import ConfigError, StoreError, TrackingUnreachable
from eval_jobs.host.bounded.answers import in_thread
from eval_jobs.host.clock import SystemClock
from eval_jobs.identity import content_hash
from eval_jobs.ports import Clock
from eval_jobs.queue.database_sql import belongs_to, transaction
from eval_jobs.queue.migrate_sql import bring_up_to_date
from eval_jobs.types import Checkpoint, EvalRecord
from tracker.adapters.database.lock_sql import lock_if_free
from tracker.adapters.database.tables import ITEMS, TRACKER_TABLES
from tracker.adapters.tracking.items_sql import (
    ITEM,
    Curves,
    newer_than_queued,
    queue_if_changed,
    queue_item,
    read_item,
    record_key,
    remember_points,
    remember_values,
    was_queued,
    with_evidence,
)
from tracker.domain.health.logs.thinning import thinned_curves
from tracker.domain.records import tracking
from tracker.domain.records.tracking import IncidentKind
from tracker.domain.records.types import CurvePoint, Report
from tracker.domain.tracking.batch import curve_batch, live_curve_batch, loss_evidence, sweep_batch, tracking_batch
from tracker.domain.tracking.ordering import delays, is_replaced, waits_for
from tracker.ports import TrackingSink

log = logging.getLogger(__name__)

FLUSH_BUDGET_S = 10.0
"""A flush ends after the item that exceeds it: a long queue must not keep the watcher from its checkpoints."""
FLUSH_S = 60.0
"""Longest time that a flush waits for a store that responds slowly; the item is sent all the same."""
FIRST_WAIT_S = 5.0
LONGEST_WAIT_S = 300.0
BACKOFF = Backoff(first_s=FIRST_WAIT_S, longest_s=LONGEST_WAIT_S)
ASIDE_S = 3600.0
"""Seconds after which what was set aside is sent once more: the server may have been another one for a while."""
CLOSE_S = 2.0
"""Seconds that `close` waits for an item that is being sent."""
POINTS_PER_ITEM = 2000
MAX_REFUSALS = 5
_MAX_REASON_CHARS = 500
_Row = Row[int, str, bytes, int, float]
"""ID, key, body, number of rejections and time of the next attempt."""


class OutboxTracking:
    """`tracker.ports.Tracking` over any `tracker.ports.TrackingSink`."""

    def __init__(self, engine: Engine, sink: TrackingSink, clock: Clock | None = None, *, run: str = "") -> None:
        """Open the outbox and migrate its tables. With `run`, only items of that run are sent.

        Raises:
            StoreError: the database cannot be reached or written, or is newer than this program.
        """
        self._engine = engine
        self._sink = sink
        self._clock = clock or SystemClock()
        self._run = run
        self._failures = 0
        self._retry_at: datetime | None = None
        self._aside_at: datetime | None = None
        self._sending: Future[None] | None = None
        bring_up_to_date(engine, TRACKER_TABLES)

    def publish(
        self,
        record: EvalRecord,
        report: Report,
        left: Sequence[Checkpoint] = (),
        series: Mapping[str, int] = tracking.NO_SERIES,
    ) -> None:
        """Queue a record with its verdicts; see `ports.Tracking`."""
        with transaction(self._engine) as connection:
            batch = newer_than_queued(connection, tracking_batch(record, report, left, series))
            key = record_key(connection, record, report)
            if key is not None and queue_item(connection, key, batch):
                remember_values(connection, batch)

    def publish_curves(self, checkpoint: Checkpoint, points: Sequence[CurvePoint]) -> None:
        """Queue the points that are new for this run; see `ports.Tracking`."""
        evidence = loss_evidence(checkpoint, points)
        self._queue_points(checkpoint.run_id, thinned_curves(points), partial(curve_batch, checkpoint), evidence)

    def publish_live_curves(self, run_id: str, points: Sequence[CurvePoint], at: datetime) -> None:
        """Queue points that a log has just got; see `ports.Tracking`."""
        self._queue_points(run_id, points, lambda part: live_curve_batch(run_id, part, at))

    def publish_incidents(
        self, run_id: str, incidents: Sequence[str], at: datetime, kind: IncidentKind = IncidentKind.TRAINING
    ) -> None:
        """Queue the incidents of a run if they have changed; see `ports.Tracking`."""
        at_ms, lines = int(at.timestamp() * 1000), tuple(incidents)
        batch = tracking.IncidentsBatch(run_id=run_id, kind=kind, at_ms=at_ms, incidents=lines)
        with transaction(self._engine) as connection:
            queue_if_changed(connection, kind, batch, lines)

    def publish_facts(self, checkpoint: Checkpoint, facts: tracking.TrainerFacts) -> None:
        """Queue what is new about the training; see `ports.Tracking`."""
        if facts != tracking.TrainerFacts():
            key = f"facts:{content_hash([checkpoint.run_id, facts.name, dict(facts.params), dict(facts.tags)])}"
            with transaction(self._engine) as connection:
                queue_item(connection, key, tracking.FactsBatch(checkpoint=checkpoint, facts=facts))

    def publish_sweep(self, record: EvalRecord) -> None:
        """Queue the result of a sweep's plan; see `ports.Tracking`."""
        key = f"sweep:{record.plan.id}:{record.finished_at.timestamp():.6f}"
        with transaction(self._engine) as connection:
            queue_item(connection, key, sweep_batch(record))

    def publish_champions(self, checkpoint: Checkpoint, champions: Sequence[tracking.Champion]) -> None:
        """Queue the aliases of a run if they have moved; see `ports.Tracking`."""
        with transaction(self._engine) as connection:
            named = tuple(c for c in champions if was_queued(connection, c))
            if named:
                batch = tracking.ChampionBatch(checkpoint=checkpoint, champions=named)
                facts = [[c.alias, c.checkpoint.digest, c.reason] for c in named]
                queue_if_changed(connection, "champions", batch, facts)

    def _queue_points(
        self,
        run_id: str,
        points: Sequence[CurvePoint],
        batch_of: Callable[[Sequence[CurvePoint]], Curves],
        evidence: tracking.CurveBatch | None = None,
    ) -> None:
        finite = [point for point in dict.fromkeys(points) if math.isfinite(point.value)]
        if not finite:
            return
        with transaction(self._engine) as connection:
            batch = batch_of(remember_points(connection, run_id, finite))  # of all points: their times have one order
            starts = range(0, len(batch.points), POINTS_PER_ITEM)
            parts = [replace(batch, points=batch.points[start : start + POINTS_PER_ITEM]) for start in starts]
            if evidence is not None:
                parts = with_evidence(connection, run_id, evidence, parts)
            for part in parts:
                queue_item(connection, f"curves:{content_hash(ITEM.dump_json(part).decode())}", part)

    def follow(self) -> None:
        """See `ports.Tracking`."""
        self._sink.follow()

    def flush(self, wait_s: float = FLUSH_S) -> int:
        """Send what is queued, oldest first, within `FLUSH_BUDGET_S`; see `ports.Tracking`."""
        if self._sending is None:
            # MLflow imports it in the thread: while it is half imported, statements of other threads fail.
            import sqlalchemy.orm  # noqa: F401

            # A store may take minutes for one item. There is never a second thread: it would write twice.
            self._sending = in_thread("sending to MLflow", self._send_due)
        if wait([self._sending], timeout=wait_s).done:
            ended, self._sending = self._sending, None
            ended.result()
        return self._waiting()

    def set_aside(self) -> tuple[tracking.RejectedItem, ...]:
        """Return what the store rejected, oldest first; see `ports.Tracking`."""
        columns = (ITEMS.c.run_id, ITEMS.c.reason)
        query = select(*columns).where(self._of_run(), _IS_REJECTED).order_by(ITEMS.c.id)
        with transaction(self._engine) as connection:
            return tuple(
                tracking.RejectedItem(run_id=row.run_id, reason=row.reason) for row in connection.execute(query)
            )

    def close(self) -> None:
        """Release connections; see `ports.Tracking`."""
        if self._sending is not None:
            wait([self._sending], timeout=CLOSE_S)
        self._sink.close()
        self._engine.dispose()

    def _send_due(self) -> None:
        started = self._clock.now()
        if self._aside_at is None or started - self._aside_at >= timedelta(seconds=ASIDE_S):
            with transaction(self._engine) as connection:
                connection.execute(_once_more(self._of_run()))
            self._aside_at = started
        rests = self._retry_at is not None and started < self._retry_at
        if self._waiting() and not rests:
            # Two senders could both find no run or model in the store and create two.
            with lock_if_free(self._engine, f"sender {self._run}") as mine:
                if mine:
                    self._send_until(started + timedelta(seconds=FLUSH_BUDGET_S))

    def _send_until(self, deadline: datetime) -> None:
        delayed: set[str] = set()
        after_id = 0
        while (now := self._clock.now()) < deadline:
            row = self._next(after_id)
            if row is None:
                return
            after_id = row.id
            try:
                self._send(row, now, delayed)
            except (TrackingUnreachable, ConfigError) as error:
                self._store_is_away(now, error)
                return

    def _send(self, row: _Row, now: datetime, delayed: set[str]) -> None:
        """Send one item, unless it has to wait; what has to wait for it is added to `delayed`."""
        item = None
        try:
            item = read_item(row.body)
            if row.retry_at_s > now.timestamp() or not delayed.isdisjoint(waits_for(item)):
                delayed |= delays(item)
                return
            self._sink.send(item)
        except (TrackingUnreachable, ConfigError):
            raise
        except StoreError as error:
            self._postpone(row, now, error)
            if item is not None and row.refused + 1 < MAX_REFUSALS:
                delayed |= delays(item)
        else:
            self._mark_sent(row.id, item)
            self._store_is_there()

    def _next(self, after_id: int) -> _Row | None:
        columns = (ITEMS.c.id, ITEMS.c.key, ITEMS.c.body, ITEMS.c.refused, ITEMS.c.retry_at_s)
        query = select(*columns).where(self._is_waiting(), ITEMS.c.id > after_id).order_by(ITEMS.c.id).limit(1)
        with transaction(self._engine) as connection:
            return connection.execute(query).one_or_none()

    def _mark_sent(self, item_id: int, item: tracking.TrackingItem) -> None:
        # The key stays, so that the same item is never queued again; the body is in the store now.
        done = update(ITEMS).values(sent=True, body=None)
        of_run = ITEMS.c.run_id == tracking.run_of(item)
        rejected = select(ITEMS.c.id, ITEMS.c.body).where(of_run, _IS_REJECTED, ITEMS.c.id < item_id)
        with transaction(self._engine) as connection:
            replaced = [row.id for row in connection.execute(rejected) if _is_replaced(row.body, item)]
            connection.execute(done.where(ITEMS.c.id.in_([item_id, *replaced])))
            if isinstance(item, tracking.TrackingBatch):  # its model may be what an alias lacked
                connection.execute(_once_more(of_run & ITEMS.c.key.startswith("champions:")))

    def _postpone(self, row: _Row, now: datetime, error: StoreError) -> None:
        refused = row.refused + 1
        values = {"refused": refused, "retry_at_s": now.timestamp() + BACKOFF.wait_s(refused)}
        if refused >= MAX_REFUSALS:
            values["reason"] = error.message[:_MAX_REASON_CHARS]
        with transaction(self._engine) as connection:
            connection.execute(update(ITEMS).where(ITEMS.c.id == row.id).values(values))
        if refused >= MAX_REFUSALS:
            log.warning("MLflow write %s rejected %d times and set aside: %s", row.key, refused, error)
        else:
            level = logging.DEBUG if row.refused else logging.WARNING
            log.log(level, "MLflow write %s not sent, retrying: %s", row.key, error)

    def _store_is_away(self, now: datetime, error: StoreError | ConfigError) -> None:
        if self._failures == 0:
            log.warning("results not sent to MLflow, retrying: %s", error)
        self._retry_at = now + timedelta(seconds=BACKOFF.wait_s(self._failures + 1))
        self._failures += 1

    def _store_is_there(self) -> None:
        if self._failures:
            log.warning("MLflow reachable again; sending pending results")
        self._failures = 0
        self._retry_at = None

    def _waiting(self) -> int:
        with transaction(self._engine) as connection:
            return connection.scalar(select(func.count()).select_from(ITEMS).where(self._is_waiting())) or 0

    def _is_waiting(self) -> ColumnElement[bool]:
        return and_(ITEMS.c.sent.is_(False), ITEMS.c.refused < MAX_REFUSALS, self._of_run())

    def _of_run(self) -> ColumnElement[bool]:
        if self._run:
            return belongs_to(ITEMS.c.run_id, self._run)
        return true()


_IS_REJECTED = and_(ITEMS.c.sent.is_(False), ITEMS.c.reason.is_not(None))


def _once_more(which: ColumnElement[bool]) -> Update:
    """Return the statement that makes items set aside wait for one more attempt."""
    is_aside = and_(ITEMS.c.sent.is_(False), ITEMS.c.refused >= MAX_REFUSALS)
    return update(ITEMS).where(is_aside, which).values(refused=MAX_REFUSALS - 1, retry_at_s=0.0)


def _is_replaced(body: bytes, newer: tracking.TrackingItem) -> bool:
    try:
        return is_replaced(read_item(body), newer)
    except StoreError:
        return False
