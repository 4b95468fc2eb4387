"""How people are told."""

from collections.abc import Sequence
from typing import Protocol

from tracker.domain.records.alerts import Alert, AlertMessage, ChannelState, Silence


class AlertSender(Protocol):
    """Tells people, on every channel, at least once. Never loses an alert, never blocks the watcher."""

    def publish(self, alerts: Sequence[Alert]) -> None:
        """Queue alerts for every channel.

        One whose fingerprint was queued last in the same state changes nothing, and so does the end of what was never
        queued: a channel that is new is not told of the end of what began before it.
        """

    def flush(self) -> int:
        """Let every channel send what is due, each by itself, and return how many alerts wait. Nothing is waited for.

        What is due for one checkpoint goes in one message. A channel that is away is no error here: it is asked
        again later, and no other channel waits for it.
        """

    def close(self) -> None:
        """Give the channels a moment to take what is due. Calling it twice is harmless."""


class ChannelRegistry(Protocol):
    """What every channel was told and what waits for it."""

    def channels(self) -> tuple[ChannelState, ...]:
        """Return the state of every channel: the configured ones, and those for which something waits all the same."""

    def hand_over(self, old: str, new: str) -> tuple[Alert, ...]:
        """Let the channel `new` stand for `old`: what waits for it, and what it was told. Return what is firing of it.

        Of a cause of which `new` has heard itself, nothing is taken over.
        """

    def give_up(self, channel: str) -> int:
        """Forget a channel, and return how many alerts it will never be told. One that is not known: 0."""


class SilenceStore(Protocol):
    """What people are not told of for a while."""

    def silence(self, silence: Silence) -> None:
        """Hold back from now on what it means, until it ends; one of the same id is replaced.

        What is firing at its end is told then; what began and ended meanwhile is not.
        """

    def silences(self) -> tuple[Silence, ...]:
        """Return the silences that have not ended, those that end first before the others."""


class Alerting(AlertSender, ChannelRegistry, SilenceStore, Protocol):
    """All of it, kept in one place."""


class Notifier(Protocol):
    """One channel to people."""

    @property
    def name(self) -> str:
        """Name that a person gave it."""

    @property
    def repeat_s(self) -> float | None:
        """Seconds after which the service must hear again what is firing, because it forgets; None: it does not."""

    def notify(self, message: AlertMessage) -> str:
        """Deliver the message in bounded time, at most 30 s, and return what the service answered, one line.

        It is delivered when the service itself says so, not when a connection worked.

        Raises:
            ChannelUnreachable: nobody answers, or the service is too busy: later it may work.
            ChannelRefused: the service does not take this message, key or signature.
        """
