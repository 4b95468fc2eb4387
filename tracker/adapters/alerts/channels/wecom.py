"""WeCom (WeChat Work): a robot of a group. The HTTP status is always 200; `errcode` in the body decides."""

from tracker.adapters.alerts.sending.markdown import linked, markdown
from tracker.adapters.alerts.sending.posting import json_bytes, post
from tracker.adapters.alerts.sending.reply import BUSY_S, AcceptanceRule, say
from tracker.adapters.alerts.sending.target import Channel, Target
from tracker.domain.alerts.text import LINK, Room, blocks_text, bytes_long, message_text
from tracker.domain.records.alerts import AlertMessage

MAX_BYTES = 4096
MARKUP = markdown("\n")
_BETWEEN = "\n\n"
_MAX_ENTRIES = 60
_MAX_LINK_BYTES = 800

TAKEN = AcceptanceRule(
    fields=(("errcode", "errmsg"),),
    busy=dict.fromkeys((-1, 45009, 45033), BUSY_S),
    hints=(
        ("93000", Target.look_at_url),
        ("webhook url", Target.look_at_url),
        ("40058", say("report this bug with the error text: WeCom rejected the message format")),
    ),
)


class WeCom(Channel):
    """`tracker.ports.Notifier` for a robot of WeCom."""

    def notify(self, message: AlertMessage) -> str:
        """Deliver the message; see the port."""
        text = message_text(message)
        colour = "warning" if text.is_firing else "info"
        head = f'### <font color="{colour}">{MARKUP.escape(text.title)}</font>'
        link = linked(text.link, LINK)
        if bytes_long(link) > _MAX_LINK_BYTES:
            link = ""
        between = len(_BETWEEN) * (_MAX_ENTRIES + 3)
        total = MAX_BYTES - bytes_long(head) - bytes_long(link) - between
        room = Room(total=total, count=_MAX_ENTRIES, size=bytes_long)
        content = _BETWEEN.join(filter(None, [head, *blocks_text(text, MARKUP, room), link]))
        body = {"msgtype": "markdown", "markdown": {"content": content}}
        return TAKEN.check(self.target, post(self.target, json_bytes(body)))
