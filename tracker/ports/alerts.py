"""Delivery of alerts."""

from collections.abc import Sequence
from typing import Protocol

from tracker.domain.records.alerts import Alert, AlertMessage, ChannelState, Silence


class AlertSender(Protocol):
    """Sends alerts on every channel, at least once. Never loses an alert, never blocks the watcher."""

    def publish(self, alerts: Sequence[Alert]) -> None:
        """Queue alerts for every channel.

        An alert whose fingerprint was last queued in the same state changes nothing. Neither does a resolved alert that
        was never queued as firing: a new channel does not receive the end of what began before it.
        """

    def flush(self) -> int:
        """Let every channel send what is due, independently, without waiting; return how many alerts wait.

        What is due for one checkpoint goes into one message. An unreachable channel is not an error here: it is
        retried later, and does not delay other channels.
        """

    def close(self) -> None:
        """Give the channels a moment to send what is due. Calling it twice is harmless."""


class Alerting(AlertSender, Protocol):
    """Also: what was sent on every channel, what waits for it, and what is silenced."""

    def channels(self) -> tuple[ChannelState, ...]:
        """Return the state of every channel: the configured ones, and others for which alerts still wait."""

    def hand_over(self, old: str, new: str) -> tuple[Alert, ...]:
        """Move what waits for channel `old`, and what it has sent, to `new`. Return the moved alerts that are firing.

        Alerts of causes that `new` already has are dropped.
        """

    def give_up(self, channel: str) -> int:
        """Remove a channel, and return how many waiting alerts are dropped; 0 for an unknown channel."""

    def silence(self, silence: Silence) -> None:
        """Hold back the matching alerts until the silence ends; one with the same id is replaced.

        What is firing at its end is sent then. What began and ended meanwhile is not.
        """

    def silences(self) -> tuple[Silence, ...]:
        """Return the silences that have not ended, ordered by their end."""


class Notifier(Protocol):
    """One alert channel."""

    @property
    def name(self) -> str:
        """Name from the configuration."""

    @property
    def repeat_s(self) -> float | None:
        """Seconds after which firing alerts must be sent again, because the service expires them; None: never."""

    def notify(self, message: AlertMessage) -> str:
        """Deliver the message in bounded time, at most 30 s, and return the response of the service, one line.

        It is delivered when the service confirms it; a successful connection is not enough.

        Raises:
            ChannelUnreachable: no response, or the service is too busy. A later attempt may succeed.
            ChannelRefused: the service rejects this message, key or signature.
        """
