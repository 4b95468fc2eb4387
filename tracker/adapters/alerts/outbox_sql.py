"""The outbox of the channels: alerts wait in the tracker's own database until each channel has accepted them.

    alerting = AlertOutbox(open_database(url), channels, run="run-a")
    alerting.publish(alerts)     # one transaction; nothing is sent
    alerting.flush()             # channels with due alerts send them, each in its own thread

An alert is marked as sent after its channel accepted it: a crash in between sends it again.
"""

import logging
from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, Engine, and_, case, delete, func, insert, select, update

from eval_jobs.errors import StoreError
from eval_jobs.host.clock import SystemClock
from eval_jobs.ports import Clock
from eval_jobs.queue.database_sql import belongs_to, put_row, transaction
from eval_jobs.queue.migrate_sql import bring_up_to_date
from tracker.adapters.alerts.sender_sql import ChannelSender
from tracker.adapters.database.codec import from_json, stored_step, to_json
from tracker.adapters.database.damaged_sql import DamagedRows
from tracker.adapters.database.tables import DELIVERIES, SILENCES, TRACKER_TABLES
from tracker.domain.alerts.delivery import BY_SILENCE, Delivery, DeliveryStatus, channel_state, is_news
from tracker.domain.records.alerts import Alert, AlertState, ChannelState, Silence
from tracker.domain.records.display import count_text
from tracker.ports import Notifier

log = logging.getLogger(__name__)

CLOSE_S = 15.0
"""Seconds that a command waits for its channels at exit; the next start sends the remaining alerts."""


class AlertOutbox:
    """`tracker.ports.Alerting` over any number of `tracker.ports.Notifier`."""

    def __init__(
        self, engine: Engine, channels: Sequence[Notifier], clock: Clock | None = None, *, run: str, link: str = ""
    ) -> None:
        """Open the outbox and migrate its tables. Only alerts of `run` are sent.

        Raises:
            StoreError: the database cannot be reached or written, or is newer than this program.
        """
        self._engine = engine
        self._clock = clock or SystemClock()
        self._run = run
        self._senders = {c.name: ChannelSender(engine, c, self._clock, run=run, link=link) for c in channels}
        self._damaged = DamagedRows()
        bring_up_to_date(engine, TRACKER_TABLES)

    def publish(self, alerts: Sequence[Alert]) -> None:
        """Queue the alerts for every channel; see `ports.Alerting`."""
        if self._senders and alerts:
            with transaction(self._engine) as connection:
                for channel in self._senders:
                    for alert in alerts:
                        _queue(connection, channel, alert)

    def flush(self) -> int:
        """Start sending due alerts on every channel; see `ports.Alerting`."""
        if not self._senders:
            return 0
        due = select(DELIVERIES.c.channel, func.count().label("n"), func.min(DELIVERIES.c.retry_at_s).label("at"))
        with transaction(self._engine) as connection:
            rows = connection.execute(due.where(self._is_waiting()).group_by(DELIVERIES.c.channel)).all()
        now = self._clock.now()
        first_due_s = {row.channel: row.at for row in rows}
        for name, sender in self._senders.items():
            sender.start(now, first_due_s.get(name))
        return sum(row.n for row in rows if row.channel in self._senders)

    def close(self) -> None:
        """Wait for the channels to finish, at most `CLOSE_S`; see `ports.Alerting`."""
        deadline = self._clock.now().timestamp() + CLOSE_S
        try:
            for _ in range(2):  # a busy channel does not see alerts that were queued meanwhile
                self.flush()
                for sender in self._senders.values():
                    sender.join(deadline - self._clock.now().timestamp())
            left = tuple(state for state in self.channels() if state.waiting)
        except StoreError as error:
            log.debug("alerts pending in the database: %s", error)
            return
        for state in left:
            _warn_of(state)

    def channels(self) -> tuple[ChannelState, ...]:
        """Return the state of every channel; see `ports.Alerting`."""
        query = (
            select(DELIVERIES.c.channel, DELIVERIES.c.status, DELIVERIES.c.last_error)
            .where(self._is_waiting())
            .order_by(DELIVERIES.c.id)
        )
        waiting: dict[str, list[Delivery]] = {name: [] for name in self._senders}
        with transaction(self._engine) as connection:
            for row in connection.execute(query):
                waiting.setdefault(row.channel, []).append((DeliveryStatus(row.status), row.last_error))
        return tuple(
            channel_state(name, deliveries, is_configured=name in self._senders) for name, deliveries in waiting.items()
        )

    def hand_over(self, old: str, new: str) -> tuple[Alert, ...]:
        """Move the alerts of channel `old` to channel `new`; see `ports.Alerting`."""
        is_known = select(DELIVERIES.c.fingerprint).where(DELIVERIES.c.channel == new)
        known = DELIVERIES.c.fingerprint.in_(is_known.scalar_subquery())
        newest = select(func.max(DELIVERIES.c.id)).where(self._is_of(old)).group_by(DELIVERIES.c.fingerprint)
        firing = select(DELIVERIES.c.alert).where(DELIVERIES.c.id.in_(newest), DELIVERIES.c.state == AlertState.FIRING)
        with transaction(self._engine) as connection:
            connection.execute(delete(DELIVERIES).where(self._is_of(old), known))
            firing = firing.order_by(DELIVERIES.c.id)
            alerts = tuple(self._damaged.documents(connection, firing, Alert, DELIVERIES))
            # Reset to not attempted: the failures of the old channel do not concern the new one.
            waits = and_(DELIVERIES.c.sent.is_(False), DELIVERIES.c.status.not_in(BY_SILENCE))
            status = case((waits, DeliveryStatus.WAITING), else_=DELIVERIES.c.status)
            anew = {"status": status, "last_error": "", "attempts": 0, "retry_at_s": 0.0}
            connection.execute(update(DELIVERIES).where(self._is_of(old)).values(channel=new, **anew))
        return alerts

    def give_up(self, channel: str) -> int:
        """Delete all alerts of a channel; see `ports.Alerting`."""
        count = select(func.count()).where(self._is_of(channel), DELIVERIES.c.sent.is_(False))
        with transaction(self._engine) as connection:
            waiting = connection.scalar(count) or 0
            connection.execute(delete(DELIVERIES).where(self._is_of(channel)))
        return waiting

    def silence(self, silence: Silence) -> None:
        """Store a silence, effective from now on; see `ports.Alerting`."""
        row = {"id": silence.id, "run_id": silence.run_id, "ends_at": silence.ends_at, "silence": to_json(silence)}
        with transaction(self._engine) as connection:
            put_row(connection, SILENCES, row)
            # The silence may now end earlier, so all waiting alerts are checked again.
            connection.execute(update(DELIVERIES).where(self._is_waiting()).values(retry_at_s=0.0))

    def silences(self) -> tuple[Silence, ...]:
        """Return the silences that have not ended; see `ports.Alerting`."""
        query = select(SILENCES.c.silence).where(
            belongs_to(SILENCES.c.run_id, self._run), SILENCES.c.ends_at > self._clock.now()
        )
        query = query.order_by(SILENCES.c.ends_at, SILENCES.c.id)
        with transaction(self._engine) as connection:
            return tuple(self._damaged.documents(connection, query, Silence, SILENCES))

    def _is_of(self, channel: str) -> ColumnElement[bool]:
        return and_(DELIVERIES.c.channel == channel, belongs_to(DELIVERIES.c.run_id, self._run))

    def _is_waiting(self) -> ColumnElement[bool]:
        return and_(DELIVERIES.c.sent.is_(False), belongs_to(DELIVERIES.c.run_id, self._run))


def _warn_of(state: ChannelState) -> None:
    if state.is_silenced:
        return  # silenced on purpose
    count = count_text(state.waiting, "alert")
    if not state.is_configured:
        gone = "cannot send %s: channel %s is not configured (see `tracker alerts list`)"
        log.warning(gone, count, state.name)
        return
    why = state.last_error or "not attempted yet"
    log.warning(
        "%s for channel %s pending, to be sent by the watcher or at the next start: %s",
        count,
        state.name,
        why,
    )


def _queue(connection: Connection, channel: str, alert: Alert) -> None:
    queued = select(DELIVERIES.c.state, DELIVERIES.c.alert).where(
        DELIVERIES.c.channel == channel, DELIVERIES.c.fingerprint == alert.fingerprint
    )
    last = connection.execute(queued.order_by(DELIVERIES.c.id.desc()).limit(1)).first()
    known = from_json(Alert, last.alert) if last is not None and alert.is_correction else None
    if not is_news(alert, None if last is None else AlertState(last.state), known):
        return
    row = {
        "run_id": alert.run_id,
        "channel": channel,
        "step": stored_step(alert),
        "fingerprint": alert.fingerprint,
        "state": alert.state,
        "alert": to_json(alert),
        "sent": False,
        "attempts": 0,
        "retry_at_s": 0.0,
        "status": DeliveryStatus.WAITING,
        "last_error": "",
    }
    connection.execute(insert(DELIVERIES).values(row))
