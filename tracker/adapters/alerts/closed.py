"""A channel without its secret in this process: alerts are queued for it, and a process with the secret sends them.

The watcher keeps the environment of its start; `tracker accept` in another shell may lack the secret.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from eval_jobs.errors import ChannelUnreachable, ConfigError
from eval_jobs.ports import Clock
from tracker.adapters.alerts.opening import open_channels
from tracker.domain.records.alerts import AlertMessage
from tracker.domain.records.channels import ChannelSettings
from tracker.ports import Notifier


@dataclass(frozen=True, kw_only=True)
class ClosedChannel:
    """`tracker.ports.Notifier` that cannot send from this process."""

    name: str
    why: ConfigError
    repeat_s: float | None = None

    def notify(self, message: AlertMessage) -> str:
        """Send nothing.

        Raises:
            ChannelUnreachable: always; another process may send it.
        """
        what = f"cannot send the alert of step {message.step} from this process: {self.why.message}"
        raise ChannelUnreachable(what, hint=f"{self.why.hint}, or let `tracker watch` send it")


def open_what_can_be(channels: Sequence[ChannelSettings], clock: Clock) -> tuple[Notifier, ...]:
    """Return the channels, in order; one that cannot be opened here becomes a `ClosedChannel`."""
    return tuple(_open(channel, clock) for channel in channels)


# --- private


def _open(settings: ChannelSettings, clock: Clock) -> Notifier:
    try:
        return open_channels((settings,), clock)[0]
    except ConfigError as error:
        return ClosedChannel(name=settings.name, why=error)
