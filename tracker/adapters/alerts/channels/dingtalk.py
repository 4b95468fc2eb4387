"""DingTalk: a custom robot of a group.

The HTTP status is always 200; `errcode` in the body decides. The signature is base64, URL-encoded once.
"""

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import quote

from tracker.adapters.alerts.sending.markdown import linked, markdown
from tracker.adapters.alerts.sending.posting import json_bytes, json_long, post
from tracker.adapters.alerts.sending.reply import BUSY_S, AcceptanceRule, say
from tracker.adapters.alerts.sending.target import Channel, Target, hmac_base64
from tracker.domain.alerts.text import LINK, Room, blocks_text, message_text
from tracker.domain.records.alerts import AlertMessage

ROOM = Room(total=16_000, size=json_long)
"""A request is limited to 20,000 bytes."""
MARKUP = markdown("  \n")

PER_MINUTE = 15
"""Our own limit. After more than 20 the robot rejects messages for ten minutes, and other senders may use it too."""
MINUTE_S = 60.0

TAKEN = AcceptanceRule(
    fields=(("errcode", "errmsg"),),
    busy=dict.fromkeys((-1, 88, 90018), BUSY_S) | dict.fromkeys((90030, 130101, 410100), 10 * MINUTE_S),
    hints=(
        ("sign not match", Target.look_at_secret),
        ("timestamp", Target.look_at_secret),
        (
            "keyword",
            say("set the robot's keyword to the name of the run, which is in every title, or use a signature instead"),
        ),
        ("whitelist", say("add this machine's IP address to the robot's allowlist")),
        ("310000", Target.look_at_secret),
        ("token", Target.look_at_url),
        ("300001", Target.look_at_url),
        ("300005", Target.look_at_url),
    ),
)


@dataclass
class MinuteWindow:
    """Monotonic times at which messages were sent within the last minute."""

    sent_s: deque[float] = field(default_factory=deque)

    def wait_s(self, now_s: float) -> float:
        """Return the seconds that the next message must wait."""
        while self.sent_s and self.sent_s[0] <= now_s - MINUTE_S:
            self.sent_s.popleft()
        if len(self.sent_s) >= PER_MINUTE:
            return self.sent_s[0] + MINUTE_S - now_s
        return 0.0


@dataclass(frozen=True, kw_only=True)
class DingTalk(Channel):
    """`tracker.ports.Notifier` for a robot of DingTalk."""

    pace: MinuteWindow = field(default_factory=MinuteWindow)

    def notify(self, message: AlertMessage) -> str:
        """Deliver the message; see the port."""
        now_s = self.target.clock.monotonic_s()
        if wait_s := self.pace.wait_s(now_s):
            raise self.target.unreachable(f"limit of {PER_MINUTE} messages per minute reached", retry_after_s=wait_s)
        self.pace.sent_s.append(now_s)
        text = message_text(message)
        title = MARKUP.escape(text.title)
        parts = [f"### {title}", *blocks_text(text, MARKUP, ROOM), linked(text.link, LINK)]
        body = {
            "msgtype": "markdown",
            "markdown": {"title": title, "text": "\n\n".join(filter(None, parts))},
            "at": {"isAtAll": False},
        }
        target = self.target
        url = signed(target.url, target.secret, target.clock.now()) if target.secret else target.url
        return TAKEN.check(target, post(target, json_bytes(body), url=url))


def signed(url: str, secret: str, now: datetime) -> str:
    """Return the URL with timestamp and signature, which the service accepts for an hour."""
    timestamp = int(now.timestamp() * 1000)
    signature = hmac_base64(secret.encode(), f"{timestamp}\n{secret}".encode())
    separator = "&" if "?" in url else "?"
    return f"{url}{separator}timestamp={timestamp}&sign={quote(signature, safe='')}"
