"""Feishu, and Lark outside China: a custom bot of a group, with an interactive card.

The HTTP status is 200 even if the message was rejected. `code` decides; older bots return `StatusCode`. Some return
both, and then `StatusCode` may be 0 for a rejected message.
"""

from tracker.adapters.alerts.sending.markdown import linked, markdown
from tracker.adapters.alerts.sending.posting import json_bytes, json_long, post
from tracker.adapters.alerts.sending.reply import BUSY_S, AcceptanceRule, say
from tracker.adapters.alerts.sending.target import Channel, Target, hmac_base64
from tracker.domain.alerts.text import LINK, MessageText, Room, blocks_text, message_text
from tracker.domain.records.alerts import AlertMessage

ROOM = Room(total=14_000, count=40, size=json_long)
"""A request is limited to 20 kB; each entry is a separate element."""
MARKUP = markdown("\n")

TAKEN = AcceptanceRule(
    fields=(("code", "msg"), ("StatusCode", "StatusMessage")),
    busy=dict.fromkeys((11232, 11233, 99991400), BUSY_S),
    hints=(
        ("19021", Target.look_at_secret),
        ("sign", Target.look_at_secret),
        (
            "19024",
            say("set the bot's keyword to the name of the run, which is in every title, or use a signature instead"),
        ),
        ("19022", say("add this machine's IP address to the bot's allowlist")),
        ("19001", Target.look_at_url),
        ("19007", say("enable the bot in the group's settings")),
    ),
)


class Feishu(Channel):
    """`tracker.ports.Notifier` for a bot of Feishu or Lark."""

    def notify(self, message: AlertMessage) -> str:
        """Deliver the message; see the port."""
        target = self.target
        body: dict[str, object] = {"msg_type": "interactive", "card": card_of(message_text(message))}
        if target.secret:
            timestamp = int(target.clock.now().timestamp())
            body |= {"timestamp": str(timestamp), "sign": feishu_signature(target.secret, timestamp)}
        return TAKEN.check(target, post(target, json_bytes(body)))


def feishu_signature(secret: str, timestamp: int) -> str:
    """Return the signature for a POSIX time in seconds: the HMAC of no data, with time and secret as the key."""
    return hmac_base64(f"{timestamp}\n{secret}".encode(), b"")


def card_of(text: MessageText) -> dict[str, object]:
    """Return the card: a coloured title, and one element for each entry."""
    contents = [*blocks_text(text, MARKUP, ROOM), linked(text.link, LINK)]
    return {
        "config": {"wide_screen_mode": True},
        "header": {
            "template": "red" if text.is_firing else "green",
            "title": {"tag": "plain_text", "content": text.title},
        },
        "elements": [{"tag": "markdown", "content": content} for content in contents if content],
    }
