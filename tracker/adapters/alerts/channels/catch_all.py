"""Any service that the library apprise supports; only apprise confirms the delivery.

For several services, apprise reports delivery although the service refused the message.
"""

import logging
import warnings
from dataclasses import dataclass, field
from functools import partial
from threading import Semaphore

import apprise
import requests

from eval_jobs.errors import ConfigError
from eval_jobs.limits import CHANNEL_ANSWER
from tracker.adapters.alerts.channels.mail import TEXT
from tracker.adapters.alerts.sending.markdown import address
from tracker.adapters.alerts.sending.target import Channel, Target, within
from tracker.adapters.bounded_http import BoundedAdapter
from tracker.domain.alerts.text import LINK, Room, blocks_text, bytes_long, message_text
from tracker.domain.records.alerts import AlertMessage

ROOM = Room(total=8000, size=bytes_long)

for name in ("apprise", "urllib3"):  # they log addresses, which are secrets here
    logging.getLogger(name).setLevel(logging.ERROR)


@dataclass(frozen=True, kw_only=True)
class Apprise(Channel):
    """`tracker.ports.Notifier` through apprise."""

    service: apprise.Apprise = field(repr=False)
    alone: Semaphore = field(default_factory=Semaphore, repr=False, compare=False)

    def notify(self, message: AlertMessage) -> str:
        """Deliver the message; see the port. Every failure is retried, because apprise gives no reason."""
        text = message_text(message)
        where = address(text.link)
        body = "\n\n".join(filter(None, [*blocks_text(text, TEXT, ROOM), f"{LINK}: {where}" if where else ""]))
        kind = apprise.NotifyType.FAILURE if text.is_firing else apprise.NotifyType.SUCCESS
        try:
            taken = within(
                self.target.patience_s,
                lambda: self.service.notify(
                    body=body, title=text.title, notify_type=kind, body_format=apprise.NotifyFormat.TEXT
                ),
                self.alone,
            )
        except (TimeoutError, OSError, TypeError, ValueError) as error:
            raise self.target.unreachable(f"apprise failed: {type(error).__name__}") from error
        if not taken:
            raise self.target.unreachable("apprise reports that delivery failed")
        return "apprise reports delivery"


def open_apprise(target: Target) -> Apprise:
    """Return the channel for the address in `target`.

    Raises:
        ConfigError: apprise does not recognize the URL.
    """
    # Its services read any answer and follow any redirect. requests makes an adapter for each of their requests.
    vars(requests.sessions)["HTTPAdapter"] = partial(BoundedAdapter, target.patience_s, CHANNEL_ANSWER)
    service = apprise.Apprise()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # apprise imports all services, some from old modules
        is_known = service.add(target.url) is True
    if not is_known:
        raise ConfigError(
            f"channel {target.channel!r}: apprise does not recognize the URL",
            hint=f"compare {target.url_setting} with apprise's list of services",
        )
    return Apprise(target=target, service=service)
