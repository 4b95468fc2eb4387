"""One channel's end of the outbox of alerts: sends what is due in a thread of its own, and no other waits for it."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Engine, and_, func, select, update

from eval_jobs.errors import ChannelRefused, ChannelUnreachable, StoreError, TrackerError
from eval_jobs.host.unforeseen import error_text, report_unforeseen
from eval_jobs.ports import Clock
from eval_jobs.queue.database_sql import belongs_to, transaction
from tracker.adapters.alerts.tables_sql import OUTBOX, SILENCES
from tracker.adapters.database.codec import from_json
from tracker.adapters.database.lock_sql import named_lock
from tracker.domain.alerts.delivery import (
    BACKOFF,
    DeliveryStatus,
    QueuedAlert,
    by_checkpoint,
    deliverable,
    message_of,
    silence_of,
    without_pairs,
)
from tracker.domain.records.alerts import Alert, AlertState, Silence
from tracker.ports import Notifier

log = logging.getLogger(__name__)

MAX_IDS = 1000
"""Rows that one statement names; a database takes some ten thousand."""


class AlertLine:
    """Sends to one channel what waits for it, oldest first. One process at a time does, for each run and channel."""

    def __init__(self, engine: Engine, channel: Notifier, clock: Clock, *, run: str, link: str) -> None:
        self._engine = engine
        self._channel = channel
        self._repeat_s = channel.repeat_s  # once: it may come from another package, and break
        self._clock = clock
        self._run = run
        self._link = link
        self._thread: threading.Thread | None = None
        self._repeated_at: datetime | None = None
        self._rests: tuple[datetime, datetime] | None = None
        """From when until when nothing is asked of a channel that was away."""
        self._is_in_trouble = False
        self._unreadable: set[int] = set()
        self._broken = ""

    def start(self) -> None:
        """Send what is due, in the background; nothing happens while that still goes on."""
        if self._thread is None or not self._thread.is_alive():
            # A daemon: the end of a command must not wait for a service that does not answer.
            self._thread = threading.Thread(target=self._run_once, name=f"alerts to {self._channel.name}", daemon=True)
            self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait until what `start` began has ended, at most `timeout_s`."""
        if self._thread is not None:
            self._thread.join(max(0.0, timeout_s))

    def rests(self, now: datetime) -> bool:
        """Say whether the channel was away a moment ago: nothing else would fare better now."""
        return self._rests is not None and self._rests[0] <= now < self._rests[1]  # a clock may be set back

    def repeats_now(self, now: datetime) -> bool:
        """Say whether the service must hear again what is firing."""
        every_s, last = self._repeat_s, self._repeated_at
        return every_s is not None and (last is None or not timedelta() <= now - last < timedelta(seconds=every_s))

    def send_due(self) -> None:
        """Send what is due, and what the service must hear again.

        Raises:
            StoreError: the database does not say what that is.
        """
        lock = named_lock(self._engine, f"alerts {self._run} {self._channel.name}")
        try:
            if lock.take():
                self._send_news()
                self._repeat()
        finally:
            lock.release()

    # --- private

    def _run_once(self) -> None:
        try:
            self.send_due()
        except TrackerError as error:  # of the database, which the watcher asks too and speaks of
            log.debug("alerts to %s wait: %s", self._channel.name, error)
        except Exception as error:  # noqa: BLE001 - an edge that must go on
            if error_text(error) != self._broken:
                report_unforeseen(
                    log, f"alerts to channel {self._channel.name} wait", error, then="they are tried again"
                )
            self._broken = error_text(error)

    def _send_news(self) -> None:
        now = self._clock.now()
        if self.rests(now):
            return
        due, behind = deliverable(self._rows(OUTBOX.c.sent.is_(False)), now.timestamp())
        self._put_off(behind, status=DeliveryStatus.BEHIND)
        news, dropped = without_pairs(self._not_silenced(due, now))
        self._update(dropped, sent=True)
        refused: set[str] = set()
        for group in by_checkpoint(news):
            # Of a cause whose beginning was refused a moment ago nothing later is told before it.
            fit = tuple(one for one in group if one.alert.fingerprint not in refused)
            if not fit or self._is_sent(fit):
                continue
            if self.rests(self._clock.now()):
                return
            refused |= {one.alert.fingerprint for one in fit}

    def _is_sent(self, group: Sequence[QueuedAlert]) -> bool:
        """Send one message; False where the channel did not take it."""
        ids = tuple(one.id for one in group)
        try:
            self._channel.notify(message_of(group, self._link))
        except Exception as error:  # noqa: BLE001 - a channel may come from another package
            self._wait(ids, max(one.attempts for one in group) + 1, error)
            return False
        self._update(ids, sent=True, status=DeliveryStatus.WAITING, last_error="")
        if self._is_in_trouble:
            log.warning("channel %s takes alerts again", self._channel.name)
        self._is_in_trouble = False
        return True

    def _wait(self, ids: Sequence[int], attempts: int, error: Exception) -> None:
        is_away = isinstance(error, ChannelUnreachable)
        retry_after_s = error.context.get("retry_after_s") if isinstance(error, ChannelUnreachable) else None
        wait = BACKOFF.wait_s(attempts, float(retry_after_s) if retry_after_s is not None else None)
        now = self._clock.now()
        retry_at = now + timedelta(seconds=wait)
        trouble = str(error) if isinstance(error, TrackerError) else error_text(error)
        failed = {"status": DeliveryStatus.FAILED, "last_error": trouble}
        self._update(ids, attempts=attempts, retry_at_s=retry_at.timestamp(), **failed)
        if is_away:
            self._rests = (now, retry_at)
            self._let_rest_until(retry_at.timestamp())
        is_known = self._is_in_trouble and not isinstance(error, ChannelRefused)
        log.log(
            logging.DEBUG if is_known else logging.WARNING,
            "channel %s does not take an alert, it is tried again in %.0f s: %s",
            self._channel.name,
            wait,
            trouble,
        )
        self._is_in_trouble = True

    def _let_rest_until(self, until_s: float) -> None:
        """Let all that waits for the channel wait as long, so that it is told in order by whoever comes next."""
        earlier = and_(self._is_ours(), OUTBOX.c.sent.is_(False), OUTBOX.c.retry_at_s < until_s)
        with transaction(self._engine) as connection:
            connection.execute(update(OUTBOX).where(earlier).values(retry_at_s=until_s))

    def _repeat(self) -> None:
        """Tell the service again what it has taken and what lasts, without a word in the outbox."""
        now = self._clock.now()
        if self.rests(now) or not self.repeats_now(now):
            return
        self._repeated_at = now
        for group in by_checkpoint(self._standing()):
            try:
                self._channel.notify(message_of(group, self._link))
            except TrackerError as error:
                log.debug("alerts to %s were not repeated: %s", self._channel.name, error)
                return

    def _standing(self) -> tuple[QueuedAlert, ...]:
        newest = select(func.max(OUTBOX.c.id)).where(self._is_ours()).group_by(OUTBOX.c.fingerprint)
        is_firing = and_(OUTBOX.c.state == AlertState.FIRING, OUTBOX.c.sent.is_(True))
        return self._rows(and_(is_firing, OUTBOX.c.id.in_(newest)))

    def _rows(self, condition: ColumnElement[bool]) -> tuple[QueuedAlert, ...]:
        columns = tuple(OUTBOX.c[name] for name in ("id", "alert", "attempts", "retry_at_s", "status"))
        query = select(*columns).where(self._is_ours(), condition).order_by(OUTBOX.c.id)
        with transaction(self._engine) as connection:
            rows = connection.execute(query).all()
        found = []
        for row in rows:
            try:
                alert = from_json(Alert, row.alert)
            except StoreError as error:  # it keeps no other from being told
                if row.id not in self._unreadable:
                    log.warning("an alert to channel %s cannot be told: %s", self._channel.name, error)
                self._unreadable.add(row.id)
                continue
            tried = {"attempts": row.attempts, "retry_at_s": row.retry_at_s}
            found.append(QueuedAlert(id=row.id, alert=alert, status=DeliveryStatus(row.status), **tried))
        return tuple(found)

    def _not_silenced(self, due: Sequence[QueuedAlert], now: datetime) -> tuple[QueuedAlert, ...]:
        """Return what may be told now; the rest is looked at again when its silence ends."""
        if not due:
            return ()
        lasting = select(SILENCES.c.silence).where(SILENCES.c.ends_at > now)
        with transaction(self._engine) as connection:
            silences = tuple(from_json(Silence, text) for text in connection.scalars(lasting))
        held = {one.id: found for one in due if (found := silence_of(one.alert, silences, now)) is not None}
        until_s = {id_: silence.ends_at.timestamp() for id_, silence in held.items()}
        self._put_off(until_s, status=DeliveryStatus.SILENCED)
        return tuple(one for one in due if one.id not in held)

    def _put_off(self, until_s: Mapping[int, float], **values: str) -> None:
        """Let rows wait, each until its own time."""
        ids: defaultdict[float, list[int]] = defaultdict(list)
        for id_, at_s in until_s.items():
            ids[at_s].append(id_)
        for at_s, of_time in ids.items():
            self._update(of_time, retry_at_s=at_s, **values)

    def _update(self, ids: Sequence[int], **values: str | float | bool) -> None:
        for begin in range(0, len(ids), MAX_IDS):
            change = update(OUTBOX).where(OUTBOX.c.id.in_(ids[begin : begin + MAX_IDS])).values(values)
            with transaction(self._engine) as connection:
                connection.execute(change)

    def _is_ours(self) -> ColumnElement[bool]:
        return and_(OUTBOX.c.channel == self._channel.name, belongs_to(OUTBOX.c.run_id, self._run))
