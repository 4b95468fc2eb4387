"""The Markdown that DingTalk, WeCom, Feishu and Lark show: a little of it, without a way to escape a character.

So in foreign text the characters that mean something are replaced by ones that look the same and mean nothing.
"""

import re
from urllib.parse import quote

from tracker.domain.alerts.text import Markup

_LOOK_ALIKE = str.maketrans(
    {"<": "＜", ">": "＞", "*": "∗", "`": "ˋ", "[": "［", "]": "］", "~": "∼", "\\": "＼"}  # noqa: RUF001 - meant
)
EDGE_OF_ITALICS = re.compile(r"(?<!\w)_|_(?!\w)|(?<=_)_|_(?=_)")
_ENTITY = re.compile(r"&(?=#?\w+;)")
_BEGINS_A_BLOCK = re.compile(r"^\s*([#+=|-]|\d+[.)])")
_PLAIN_COMMAND = re.compile(r"[\w ./:@=,'\"+-]+")
_NOTHING_WIDE = "\u200b"


def escape_markdown(text: str) -> str:
    """Return foreign text as it may stand anywhere in such Markdown: no link, no mention, no picture, no markup."""
    text = _ENTITY.sub("＆", text.translate(_LOOK_ALIKE))  # noqa: RUF001 - meant
    text = EDGE_OF_ITALICS.sub("＿", text)  # noqa: RUF001 - meant
    if _BEGINS_A_BLOCK.match(text):
        return f"{_NOTHING_WIDE}{text}"
    return text


def address(link: str) -> str:
    """Return a link as it may stand in round or pointed brackets; empty where it is none that people can open."""
    if not link.startswith(("http://", "https://")):
        return ""
    return quote(link, safe=":/?#@!$&*+,;=%~-._")


def linked(link: str, words: str) -> str:
    """Return a link in Markdown; empty where there is none."""
    where = address(link)
    if where:
        return f"[{words}]({where})"
    return ""


def markdown(line_end: str) -> Markup:
    """Return how such Markdown is written; `line_end` begins a new line."""
    return Markup(
        escape=escape_markdown,
        bold=lambda text: f"**{text}**",
        quote=lambda text: f"> {text}",
        code=lambda text: f"`{text}`" if _PLAIN_COMMAND.fullmatch(text) else escape_markdown(text),
        line_end=line_end,
    )
