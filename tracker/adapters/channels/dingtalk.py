"""DingTalk: a custom robot of a group.

The answer's status is always 200; `errcode` decides. The signature is base64, and URL-encoded once.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import datetime
from urllib.parse import quote

from tracker.adapters.channels.markdown import linked, markdown
from tracker.adapters.channels.posting import HttpChannel, json_bytes, json_long, post
from tracker.adapters.channels.verdict import Taken, look_at_secret, look_at_url, say
from tracker.domain.alert_text import LINK, Room, shown, text_of
from tracker.domain.alert_types import AlertMessage

ROOM = Room(total=16_000, size=json_long)
"""A whole request may have 20,000 bytes."""
MARKUP = markdown("  \n")

TAKEN = Taken(
    fields=(("errcode", "errmsg"),),
    busy={-1, 88, 90018, 130101, 410100},
    hints=(
        ("sign not match", look_at_secret),
        ("timestamp", look_at_secret),
        (
            "keyword",
            say("the robot asks for a keyword: add `step`, which is in every title, or let it ask for a signature"),
        ),
        ("whitelist", say("add the address of this machine to the robot's list")),
        ("310000", look_at_secret),
        ("token", look_at_url),
        ("300001", look_at_url),
        ("300005", look_at_url),
    ),
)


class DingTalk(HttpChannel):
    """`tracker.ports.Notifier` for a robot of DingTalk."""

    def notify(self, message: AlertMessage) -> str:
        """Deliver the message; see the port."""
        text = text_of(message)
        title = MARKUP.escape(text.title)
        parts = [f"### {title}", *shown(text, MARKUP, ROOM), linked(text.link, LINK)]
        body = {
            "msgtype": "markdown",
            "markdown": {"title": title, "text": "\n\n".join(filter(None, parts))},
            "at": {"isAtAll": False},
        }
        target = self.target
        url = signed(target.url, target.secret, target.clock.now()) if target.secret else target.url
        return TAKEN.check(target, post(target, json_bytes(body), url=url))


def signed(url: str, secret: str, now: datetime) -> str:
    """Return the address with time and signature, which the service believes for an hour."""
    timestamp = int(now.timestamp() * 1000)
    digest = hmac.new(secret.encode(), f"{timestamp}\n{secret}".encode(), hashlib.sha256).digest()
    separator = "&" if "?" in url else "?"
    return f"{url}{separator}timestamp={timestamp}&sign={quote(base64.b64encode(digest), safe='')}"
