"""A part of the composition root: the channels to people."""

from eval_jobs.host.clock import SystemClock
from tracker.config import Config
from tracker.ports import Notifier


def channels_of(config: Config) -> tuple[Notifier, ...]:
    """Return the channels to people.

    Raises:
        ConfigError: the address or the key of one is not where the settings say.
    """
    settings = config.alerts.to_channels()
    if not settings:
        return ()
    from tracker.adapters.alerts.opening import open_channels

    return open_channels(settings, SystemClock())
