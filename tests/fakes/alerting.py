"""Alerting in memory, and a channel that keeps what it was told."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from eval_jobs.errors import ChannelRefused, TrackerError
from eval_jobs.ports import Clock
from tests.fakes.clock import FakeClock
from tracker.domain.alerts.delivery import (
    BY_SILENCE,
    DeliveryStatus,
    QueuedAlert,
    channel_state,
    is_news,
    message_of,
    next_turn,
    without_causes,
)
from tracker.domain.alerts.pace import Pace
from tracker.domain.records.alerts import Alert, AlertMessage, AlertState, ChannelState, Silence, alert_subject_text
from tracker.ports import Notifier


@dataclass(kw_only=True)
class FakeChannel:
    """`tracker.ports.Notifier` that keeps messages, or raises what it is told to."""

    name: str = "team"
    repeat_s: float | None = None
    messages: list[AlertMessage] = field(default_factory=list)
    trouble: Exception | None = None
    refuses: Callable[[AlertMessage], bool] = field(default=lambda _: False)
    tries: int = 0

    def notify(self, message: AlertMessage) -> str:
        self.tries += 1
        if self.trouble is not None:
            raise self.trouble
        if self.refuses(message):
            raise ChannelRefused("not this one", hint="look at it")
        self.messages.append(message)
        return "ok"

    def told(self) -> list[tuple[str, int | None, AlertState]]:
        """Return subject, step and state of everything that was delivered."""
        return [(alert_subject_text(a.subject), a.step, a.state) for message in self.messages for a in message.alerts]


@dataclass(kw_only=True)
class _Queued:
    channel: str
    alert: Alert
    is_sent: bool = False
    attempts: int = 0
    retry_at_s: float = 0.0
    status: DeliveryStatus = DeliveryStatus.WAITING
    last_error: str = ""


class FakeAlerting:
    """`tracker.ports.Alerting` that delivers within `flush`."""

    def __init__(self, channels: Sequence[Notifier] | None = None, clock: Clock | None = None, link: str = "") -> None:
        self._channels = (FakeChannel(),) if channels is None else tuple(channels)
        self._clock = clock or FakeClock()
        self._link = link
        self._queue: list[_Queued] = []
        self._silences: dict[str, Silence] = {}
        self._paces = {channel.name: Pace() for channel in self._channels}

    @property
    def alerts(self) -> list[Alert]:
        """Everything that was queued for the first channel, in order."""
        return [q.alert for q in self._queue if q.channel == self._channels[0].name]

    def publish(self, alerts: Sequence[Alert]) -> None:
        for channel in self._channels:
            for alert in alerts:
                of_channel = (q.alert for q in self._queue if q.channel == channel.name)
                known = [a for a in of_channel if a.fingerprint == alert.fingerprint]
                if is_news(alert, known[-1].state if known else None, known[-1] if known else None):
                    self._queue.append(_Queued(channel=channel.name, alert=alert))

    def flush(self) -> int:
        for channel in self._channels:
            self._send(channel)
        return sum(not q.is_sent for q in self._queue)

    def close(self) -> None:
        self.flush()

    def channels(self) -> tuple[ChannelState, ...]:
        states = []
        for channel in self._channels:
            waiting = [q for q in self._queue if q.channel == channel.name and not q.is_sent]
            deliveries = [(q.status, q.last_error) for q in waiting]
            states.append(channel_state(channel.name, deliveries, is_configured=True))
        return tuple(states)

    def hand_over(self, old: str, new: str) -> tuple[Alert, ...]:
        known = {q.alert.fingerprint for q in self._queue if q.channel == new}
        self._queue = [q for q in self._queue if q.channel != old or q.alert.fingerprint not in known]
        newest = {}
        for queued in (q for q in self._queue if q.channel == old):
            queued.channel, queued.retry_at_s = new, 0.0
            queued.status = queued.status if queued.status in BY_SILENCE else DeliveryStatus.WAITING
            queued.last_error = ""
            newest[queued.alert.fingerprint] = queued.alert
        return tuple(alert for alert in newest.values() if alert.state is AlertState.FIRING)

    def give_up(self, channel: str) -> int:
        waiting = sum(q.channel == channel and not q.is_sent for q in self._queue)
        self._queue = [q for q in self._queue if q.channel != channel]
        return waiting

    def silence(self, silence: Silence) -> None:
        self._silences[silence.id] = silence
        for queued in self._queue:
            queued.retry_at_s = 0.0

    def silences(self) -> tuple[Silence, ...]:
        now = self._clock.now()
        return tuple(sorted((s for s in self._silences.values() if s.ends_at > now), key=lambda s: s.ends_at))

    # --- private

    def _send(self, channel: Notifier) -> None:
        now, refused = self._clock.now(), set[str]()
        if self._paces[channel.name].rests(now):
            return
        waiting = [_view(i, q) for i, q in enumerate(self._queue) if q.channel == channel.name and not q.is_sent]
        turn = next_turn(waiting, self._silences.values(), now)
        for index, (until_s, status) in turn.put_off.items():
            self._queue[index].retry_at_s, self._queue[index].status = until_s, status
        self._mark_sent(turn.dropped)
        for group in turn.groups:
            fit = without_causes(group, refused)
            if not fit:
                continue
            try:
                channel.notify(message_of(fit, self._link))
            except TrackerError as error:
                self._wait(channel, fit, error, now)
                refused |= {one.alert.fingerprint for one in fit}
                if self._paces[channel.name].rests(now):
                    return
            else:
                self._mark_sent(one.id for one in fit)

    def _wait(self, channel: Notifier, group: Sequence[QueuedAlert], error: TrackerError, now: datetime) -> None:
        attempts = max(one.attempts for one in group) + 1
        self._paces[channel.name], retry = self._paces[channel.name].after_failure(error, attempts, now)
        for one in group:
            queued = self._queue[one.id]
            queued.attempts, queued.last_error, queued.retry_at_s = attempts, str(error), retry.at.timestamp()
            queued.status = DeliveryStatus.FAILED

    def _mark_sent(self, indexes: Iterable[int]) -> None:
        for index in indexes:
            self._queue[index].is_sent = True


def _view(index: int, queued: _Queued) -> QueuedAlert:
    return QueuedAlert(
        id=index,
        alert=queued.alert,
        attempts=queued.attempts,
        retry_at_s=queued.retry_at_s,
        status=queued.status,
    )
