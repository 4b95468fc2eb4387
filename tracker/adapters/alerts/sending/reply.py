"""Response bodies of the chat services, whose HTTP status is always 200."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tracker.adapters.alerts.sending.posting import Reply, json_object, unknown_answer
from tracker.adapters.alerts.sending.target import Target

Hint = Callable[[Target], str]

_BUSY = re.compile(
    r"too (fast|many)|frequen|freq out of|limit exceed|over limit|busy|限流|太快|频率|繁忙", re.IGNORECASE
)
BUSY_S = 60.0
"""The services limit messages per minute."""


@dataclass(frozen=True, kw_only=True)
class AcceptanceRule:
    """How one service reports whether it accepted a message."""

    fields: Sequence[tuple[str, str]]
    """Names of code fields, each with the name of its text field; a message was accepted if at least one code is
    present and all present codes are 0."""
    busy: Mapping[int, float]
    """Codes of temporary refusals, each with the seconds to wait."""
    hints: Sequence[tuple[str, Hint]]
    """Parts of the service's text, or codes, each with a hint; the first match counts."""

    def check(self, target: Target, reply: Reply) -> str:
        """Return the service's text about an accepted message.

        Raises:
            ChannelUnreachable: the service is busy, or the response is not from it.
            ChannelRefused: the service rejected the message.
        """
        code, text = self._code(target, reply)
        if code == 0:
            return target.harmless(text) or "ok"
        answer = f"{code} {text}"
        if code in self.busy or _BUSY.search(text):
            raise target.unreachable(answer, retry_after_s=self.busy.get(code, BUSY_S))
        hint = next((hint for piece, hint in self.hints if piece in answer.lower()), _otherwise)
        raise target.refused(answer, hint=hint(target))

    def _code(self, target: Target, reply: Reply) -> tuple[int, str]:
        """Return the first code that is not 0 with its text, else the first one."""
        answer = json_object(target, reply)
        codes = [(answer[name], str(answer.get(text, ""))) for name, text in self.fields if name in answer]
        if not codes or not all(type(code) is int for code, _ in codes):
            raise unknown_answer(target, reply)
        failed = [one for one in codes if one[0] != 0]
        return (failed or codes)[0]


def say(hint: str) -> Hint:
    """Return a hint that is the same for every channel."""
    return lambda _: hint


def _otherwise(target: Target) -> str:
    return f"check the bot's settings in {target.service} and this channel's {target.url_setting}"
