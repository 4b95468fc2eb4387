"""What the chat services say in the body of an answer whose status is always 200."""

import re
from collections.abc import Callable, Mapping, Sequence

from tracker.adapters.alerts.sending.posting import Reply, json_object, unknown_answer
from tracker.adapters.alerts.sending.target import Target

Hint = Callable[[Target], str]

_BUSY = re.compile(
    r"too (fast|many)|frequen|freq out of|limit exceed|over limit|busy|限流|太快|频率|繁忙", re.IGNORECASE
)
BUSY_S = 60.0
"""They count messages by the minute."""


class AcceptanceRule:
    """How one service says that it took a message.

    Args:
        fields: names of a code, each with the name of its text; a message was taken when every code that is there is
            0, and one of them is there.
        busy: codes that mean: not now; each with how long it lasts, in seconds.
        hints: pieces of what a service says, or codes, each with what to do about it; the first that fits counts.
    """

    def __init__(
        self,
        *,
        fields: Sequence[tuple[str, str]],
        busy: Mapping[int, float],
        hints: Sequence[tuple[str, Hint]],
    ) -> None:
        self._fields = fields
        self._busy = busy
        self._hints = hints

    def check(self, target: Target, reply: Reply) -> str:
        """Return what the service says about a message that it took.

        Raises:
            ChannelUnreachable: it is too busy, or it was not the service that answered.
            ChannelRefused: it did not take it.
        """
        code, text = self._code(target, reply)
        if code == 0:
            return target.harmless(text) or "ok"
        said = f"{code} {text}"
        if code in self._busy or _BUSY.search(text):
            raise target.unreachable(said, retry_after_s=self._busy.get(code, BUSY_S))
        hint = next((hint for piece, hint in self._hints if piece in said.lower()), _otherwise)
        raise target.refused(said, hint=hint(target))

    def _code(self, target: Target, reply: Reply) -> tuple[int, str]:
        """Return the first code that is not 0 with its text, else the first one."""
        answer = json_object(target, reply)
        codes = [(answer[name], str(answer.get(text, ""))) for name, text in self._fields if name in answer]
        if not codes or not all(type(code) is int for code, _ in codes):
            raise unknown_answer(target, reply)
        failed = [one for one in codes if one[0] != 0]
        return (failed or codes)[0]


def look_at_url(target: Target) -> str:
    """Return the hint for an address that leads nowhere."""
    return target.look_at_url


def look_at_secret(target: Target) -> str:
    """Return the hint for a signature that does not fit."""
    return target.look_at_secret


def say(hint: str) -> Hint:
    """Return a hint that says the same for every channel."""
    return lambda _: hint


# --- private


def _otherwise(target: Target) -> str:
    return f"check the bot's settings in {target.service} and this channel's {target.url_setting}"
