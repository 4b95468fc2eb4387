"""Wraps a channel of another package: anything that it raises becomes an error that names the plugin."""

from threading import Semaphore

from eval_jobs.errors import ChannelRefused, ChannelUnreachable, ConfigError
from eval_jobs.host.plugins import PluginKind, find_plugin
from eval_jobs.records.program import Program
from tracker.adapters.alerts.sending.target import within
from tracker.domain.alerts.channels import ChannelKind
from tracker.domain.records.alerts import AlertMessage
from tracker.ports import Notifier

CHANNELS = PluginKind(
    group="tracker.channels", what="channel", setting="alerts.channel.kind", built_in=tuple(map(str, ChannelKind))
)


class PluginChannel:
    """`tracker.ports.Notifier` around the channel of another package."""

    def __init__(self, name: str, program: Program, *, patience_s: float) -> None:
        """Find and open the plugin; raise ConfigError if it is not installed or cannot be opened."""
        self.name = name
        self._patience_s = patience_s
        self._alone = Semaphore()
        self._found = find_plugin(CHANNELS, program.name)
        self._channel: Notifier = self._found.open(Notifier, name, program)
        with self._found.blamed(ConfigError):
            said = self._channel.repeat_s
        self.repeat_s = None if said is None else self._found.checked(float, said, "repeat_s", ConfigError)

    def notify(self, message: AlertMessage) -> str:
        """Deliver the message within the timeout; see the port."""
        try:
            with self._found.blamed(ChannelRefused):
                said = within(self._patience_s, lambda: self._channel.notify(message), self._alone)
        except ChannelRefused as error:
            if isinstance(error.__cause__, TimeoutError | ConnectionError):
                raise ChannelUnreachable(
                    f"channel {self.name!r}: no response from {self._found}", hint="check that its service is reachable"
                ) from error
            raise
        if not str(said or "").strip():
            raise ChannelRefused(
                f"channel {self.name!r}: {self._found} did not confirm the delivery",
                hint='return the service\'s response from `notify`: see "Write a plugin" in the documentation',
            )
        return " ".join(str(said).split())
