"""Part of the composition root: the notification channels."""

from eval_jobs.host.clock import SystemClock
from tracker.config import Config
from tracker.ports import Notifier


def channels_of(config: Config) -> tuple[Notifier, ...]:
    """Return the notification channels.

    Raises:
        ConfigError: a secret is missing, a URL is invalid, or a library is not installed.
    """
    settings = config.alerts.to_channels()
    if not settings:
        return ()
    from tracker.adapters.alerts.opening import open_channels

    return open_channels(settings, SystemClock())
