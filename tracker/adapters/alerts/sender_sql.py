"""Sends due alerts of one channel from the outbox, in a separate thread, so that no channel delays another."""

import logging
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Engine, Row, and_, func, select, update

from eval_jobs.errors import TrackerError
from eval_jobs.host.unforeseen import Edge, error_text
from eval_jobs.ports import Clock
from eval_jobs.queue.database_sql import belongs_to, transaction
from tracker.adapters.database.codec import from_json
from tracker.adapters.database.damaged_sql import DamagedRows
from tracker.adapters.database.lock_sql import lock_if_free
from tracker.adapters.database.tables import DELIVERIES, SILENCES
from tracker.domain.alerts import delivery
from tracker.domain.alerts.pace import Pace
from tracker.domain.records.alerts import Alert, AlertState, Silence
from tracker.ports import Notifier

log = logging.getLogger(__name__)

MAX_IDS = 1000
"""Row ids in one statement; a database accepts some ten thousand."""


class ChannelSender:
    """Sends the waiting alerts of one channel, oldest first. One process at a time sends for each run and channel."""

    def __init__(self, engine: Engine, channel: Notifier, clock: Clock, *, run: str, link: str) -> None:
        self._engine = engine
        self._channel = channel
        self._pace = Pace(repeat_s=channel.repeat_s)  # read once: the property of a plugin may raise
        self._clock = clock
        self._run = run
        self._link = link
        self._thread: threading.Thread | None = None
        self._damaged = DamagedRows()
        self._edge = Edge(log, f"cannot send alerts to channel {channel.name}", then="retrying")

    def start(self, now: datetime, first_due_s: float | None) -> None:
        """Send in a background thread if something is due (see `Pace.is_asked`), unless one is still running."""
        is_running = self._thread is not None and self._thread.is_alive()
        if self._pace.is_asked(now, first_due_s) and not is_running:
            # A daemon thread: a command must not wait at exit for a service that does not respond.
            thread = threading.Thread(target=self._run_once, name=f"alerts to {self._channel.name}", daemon=True)
            thread.start()
            self._thread = thread  # set last: a thread that was interrupted during its start cannot be joined

    def join(self, timeout_s: float) -> None:
        """Wait for the thread of `start` to end, at most `timeout_s`."""
        if self._thread is not None:
            self._thread.join(max(0.0, timeout_s))

    def send_due(self) -> None:
        """Send due alerts, and repeat firing ones for a service that forgets them.

        Raises:
            StoreError: the database cannot be read or written.
        """
        with lock_if_free(self._engine, f"alerts {self._run} {self._channel.name}") as mine:
            if mine:
                self._send_news()
                self._repeat()

    def _run_once(self) -> None:
        with self._edge.guarded():
            try:
                self.send_due()
            except TrackerError as error:  # of the database; the watcher uses it too and reports the error
                log.debug("alerts to %s pending: %s", self._channel.name, error)

    def _send_news(self) -> None:
        now = self._clock.now()
        if self._pace.rests(now):
            return
        turn = delivery.next_turn(self._rows(DELIVERIES.c.sent.is_(False)), self._silences(now), now)
        self._put_off(turn.put_off)
        self._update(turn.dropped, sent=True)
        refused: set[str] = set()
        for group in turn.groups:
            fit = delivery.without_causes(group, refused)
            if not fit or self._send(fit):
                continue
            if self._pace.rests(self._clock.now()):
                return
            refused |= {one.alert.fingerprint for one in fit}

    def _send(self, group: Sequence[delivery.QueuedAlert]) -> bool:
        """Send one message and store the outcome; return whether the channel accepted it."""
        try:
            self._channel.notify(delivery.message_of(group, self._link))
        except Exception as error:  # noqa: BLE001 - a channel may come from another package
            self._wait(group, error)
            return False
        self._update([one.id for one in group], sent=True, status=delivery.DeliveryStatus.WAITING, last_error="")
        if self._pace.is_in_trouble:
            log.warning("channel %s accepts alerts again", self._channel.name)
        self._pace = replace(self._pace, is_in_trouble=False)
        return True

    def _wait(self, group: Sequence[delivery.QueuedAlert], error: Exception) -> None:
        attempts = max(one.attempts for one in group) + 1
        self._pace, retry = self._pace.after_failure(error, attempts, self._clock.now())
        trouble, until_s = str(error) if isinstance(error, TrackerError) else error_text(error), retry.at.timestamp()
        failed = {"status": delivery.DeliveryStatus.FAILED, "last_error": trouble}
        self._update([one.id for one in group], attempts=attempts, retry_at_s=until_s, **failed)
        if retry.is_for_all:
            self._let_rest_until(until_s)
        log.log(
            logging.WARNING if retry.is_news else logging.DEBUG,
            "channel %s failed, retrying in %.0f s: %s",
            self._channel.name,
            retry.wait_s,
            trouble,
        )

    def _let_rest_until(self, until_s: float) -> None:
        earlier = and_(self._is_ours(), DELIVERIES.c.sent.is_(False), DELIVERIES.c.retry_at_s < until_s)
        with transaction(self._engine) as connection:
            connection.execute(update(DELIVERIES).where(earlier).values(retry_at_s=until_s))

    def _repeat(self) -> None:
        """Resend the firing alerts that the service has accepted; the outbox does not change."""
        now = self._clock.now()
        if not self._pace.repeats(now):
            return
        self._pace = replace(self._pace, repeated_at=now)
        for group in delivery.by_checkpoint(self._standing()):
            try:
                self._channel.notify(delivery.message_of(group, self._link))
            except TrackerError as error:
                log.debug("alerts to %s not repeated: %s", self._channel.name, error)
                return

    def _standing(self) -> tuple[delivery.QueuedAlert, ...]:
        newest = select(func.max(DELIVERIES.c.id)).where(self._is_ours()).group_by(DELIVERIES.c.fingerprint)
        is_firing = and_(DELIVERIES.c.state == AlertState.FIRING, DELIVERIES.c.sent.is_(True))
        return self._rows(and_(is_firing, DELIVERIES.c.id.in_(newest)))

    def _rows(self, condition: ColumnElement[bool]) -> tuple[delivery.QueuedAlert, ...]:
        columns = tuple(DELIVERIES.c[name] for name in ("id", "alert", "attempts", "retry_at_s", "status"))
        query = select(*columns).where(self._is_ours(), condition).order_by(DELIVERIES.c.id)
        with transaction(self._engine) as connection:
            return tuple(self._damaged.readable(connection, query, _queued, DELIVERIES))

    def _silences(self, now: datetime) -> tuple[Silence, ...]:
        lasting = select(SILENCES.c.silence).where(SILENCES.c.ends_at > now)
        with transaction(self._engine) as connection:
            return tuple(self._damaged.documents(connection, lasting, Silence, SILENCES))

    def _put_off(self, put_off: Mapping[int, tuple[float, delivery.DeliveryStatus]]) -> None:
        alike: defaultdict[tuple[float, delivery.DeliveryStatus], list[int]] = defaultdict(list)
        for id_, until in put_off.items():
            alike[until].append(id_)
        for (until_s, status), ids in alike.items():
            self._update(ids, retry_at_s=until_s, status=status)

    def _update(self, ids: Sequence[int], **values: str | float | bool) -> None:
        for begin in range(0, len(ids), MAX_IDS):
            change = update(DELIVERIES).where(DELIVERIES.c.id.in_(ids[begin : begin + MAX_IDS])).values(values)
            with transaction(self._engine) as connection:
                connection.execute(change)

    def _is_ours(self) -> ColumnElement[bool]:
        return and_(DELIVERIES.c.channel == self._channel.name, belongs_to(DELIVERIES.c.run_id, self._run))


def _queued(row: Row[Any]) -> delivery.QueuedAlert:
    return delivery.QueuedAlert(
        id=row.id,
        alert=from_json(Alert, row.alert),
        attempts=row.attempts,
        retry_at_s=row.retry_at_s,
        status=delivery.DeliveryStatus(row.status),
    )
