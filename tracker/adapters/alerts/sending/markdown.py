"""The Markdown of DingTalk, WeCom, Feishu and Lark: a small subset, in which no character can be escaped.

In external text, special characters are therefore replaced with ordinary ones that look the same.
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
    """Return external text escaped for this Markdown: no link, mention, picture or markup remains."""
    text = _ENTITY.sub("＆", text.translate(_LOOK_ALIKE))  # noqa: RUF001 - meant
    text = EDGE_OF_ITALICS.sub("＿", text)  # noqa: RUF001 - meant
    if _BEGINS_A_BLOCK.match(text):
        return f"{_NOTHING_WIDE}{text}"
    return text


def address(link: str) -> str:
    """Return a link quoted for use in round or angle brackets; empty if it is not an http(s) URL."""
    if not link.startswith(("http://", "https://")):
        return ""
    return quote(link, safe=":/?#@!$&*+,;=%~-._")


def linked(link: str, words: str) -> str:
    """Return a Markdown link; empty if `link` is not an http(s) URL."""
    where = address(link)
    if where:
        return f"[{words}]({where})"
    return ""


def markdown(line_end: str) -> Markup:
    """Return the rules of this Markdown; `line_end` starts a new line."""
    return Markup(
        escape=escape_markdown,
        bold=lambda text: f"**{text}**",
        quote=lambda text: f"> {text}",
        code=lambda text: f"`{text}`" if _PLAIN_COMMAND.fullmatch(text) else escape_markdown(text),
        line_end=line_end,
    )
