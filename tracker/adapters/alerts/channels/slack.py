"""Slack: an incoming webhook. It answers `ok` to an accepted message, else an error status and one word."""

from eval_jobs.limits import cut
from tracker.adapters.alerts.sending.markdown import EDGE_OF_ITALICS, address
from tracker.adapters.alerts.sending.posting import json_bytes, post, unknown_answer
from tracker.adapters.alerts.sending.target import Channel
from tracker.domain.alerts.text import LINK, Markup, MessageText, Room, blocks_text, message_text
from tracker.domain.records.alerts import AlertMessage

MAX_HEADER_CHARS = 150
ROOM = Room(total=30_000, each=2900, count=40)
"""A section is limited to 3,000 characters, a message to 50 blocks."""

_LOOK_ALIKE = str.maketrans({"*": "∗", "`": "ˋ", "~": "∼", "&": "&amp;", "<": "&lt;", ">": "&gt;"})  # noqa: RUF001


def escape_mrkdwn(text: str) -> str:
    """Return external text escaped for Slack's markup: no link, mention or markup remains."""
    return EDGE_OF_ITALICS.sub("＿", text.translate(_LOOK_ALIKE))  # noqa: RUF001 - looks the same, means nothing


def _code(text: str) -> str:
    if "`" in text:
        return escape_mrkdwn(text)
    return f"`{text.replace('&', '&amp;').replace('<', '&lt;').replace('>', '&gt;')}`"


MARKUP = Markup(escape=escape_mrkdwn, bold=lambda text: f"*{text}*", quote=lambda text: f"> {text}", code=_code)


class Slack(Channel):
    """`tracker.ports.Notifier` for an incoming webhook of Slack."""

    def notify(self, message: AlertMessage) -> str:
        """Deliver the message; see the port."""
        reply = post(self.target, json_bytes(payload_of(message_text(message))))
        if reply.body.strip() != "ok":
            raise unknown_answer(self.target, reply)
        return "ok"


def payload_of(text: MessageText) -> dict[str, object]:
    """Return the message: phones show `text`, the channel shows the blocks."""
    header = {"type": "plain_text", "text": cut(text.title, MAX_HEADER_CHARS), "emoji": False}
    sections = blocks_text(text, MARKUP, ROOM)
    where = address(text.link).replace("|", "%7C").replace("&", "&amp;")
    if where:
        sections.append(f"<{where}|{LINK}>")
    return {
        "text": escape_mrkdwn(text.title),
        "blocks": [
            {"type": "header", "text": header},
            # `verbatim`: Slack turns nothing in it into a link or a mention
            *({"type": "section", "text": {"type": "mrkdwn", "text": s, "verbatim": True}} for s in sections),
        ],
    }
