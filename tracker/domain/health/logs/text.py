r"""From the bytes of a growing log to its lines. Pure.

    piece = split(b"step 1\nstep", TextState())
    piece.lines                        # (RawLine(number=1, text="step 1"),)
    piece.taken                        # 7: the rest waits for its end
    piece.rest                         # "step"

A line ends with a line feed, or with the carriage return of a progress bar. Of a line longer than `MAX_LINE_BYTES` the
first part is a line, and the rest is left out: it is data, such as a printed tensor.
"""

import codecs
from dataclasses import dataclass, replace
from typing import NamedTuple

from tracker.domain.health.logs.ranks import parts_of_ranks

MAX_LINE_BYTES = 64 << 10

_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


@dataclass(frozen=True, kw_only=True)
class TextState:
    """Where the text of a file stands between two readings."""

    encoding: str = ""
    """Empty: nothing was read yet."""
    lines: int = 0
    """Line feeds so far."""
    is_within: bool = False
    """Whether what follows belongs to a line that was too long."""


class RawLine(NamedTuple):
    """One line without its end."""

    number: int
    """From 1; parts of a progress bar share one, and what several ranks printed."""
    text: str
    is_known: bool = False
    """Whether its trouble was counted before it had an end."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """The decoded text of a part of a file."""

    lines: tuple[RawLine, ...]
    taken: int
    """Bytes of these lines, with their ends."""
    rest: str
    """Start of the next line, which has no end yet."""
    state: TextState


def encoding_of(head: bytes) -> str:
    """Return the encoding of a file by its first bytes: UTF-8 unless they are the mark of another one."""
    for mark, encoding in _MARKS.items():
        if head.startswith(mark):
            return encoding
    return "utf-8"


def split(data: bytes, state: TextState) -> Piece:
    """Return the lines that end within `data`; bytes that cannot be decoded are replaced."""
    encoding = state.encoding or encoding_of(data)
    end = _last_end(data, encoding)
    ended = data[:end].decode(encoding, errors="replace")
    lines, number = _lines(ended, state.lines), state.lines + ended.count("\n")
    is_within = state.is_within and not lines
    if state.is_within and lines:
        del lines[0]  # the end of the line that was too long
    rest = data[end:]
    if len(rest) >= MAX_LINE_BYTES:
        if not is_within:
            lines.append(
                RawLine(number=number + 1, text=_plain(rest[:MAX_LINE_BYTES].decode(encoding, errors="replace")))
            )
        end, rest, is_within = len(data), b"", True
    return Piece(
        lines=tuple(lines),
        taken=end,
        rest="" if is_within else _plain(rest.decode(encoding, errors="replace")),
        state=replace(state, encoding=encoding, lines=number, is_within=is_within),
    )


def _lines(text: str, number: int) -> list[RawLine]:
    """Return the lines of a text that ends with the end of one; `number` of them were before it."""
    lines = []
    *ended, bars = text.replace("\r\n", "\n").split("\n")
    for physical in ended:
        number += 1
        for part in physical.split("\r"):  # a progress bar that is drawn again in the same line
            lines += [RawLine(number=number, text=text) for text in parts_of_ranks(_plain(part))]
    return lines + [RawLine(number=number + 1, text=_plain(part)) for part in bars.split("\r")[:-1]]


def _last_end(data: bytes, encoding: str) -> int:
    """Return the number of bytes up to the last end of a line."""
    if encoding == "utf-8":
        return max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
    whole = data[: len(data) // 2 * 2]
    ends = ["\n".encode(encoding), "\r".encode(encoding)]
    for place in range(len(whole) - 2, -1, -2):
        if whole[place : place + 2] in ends:
            return place + 2
    return 0


def _plain(text: str) -> str:
    return text.lstrip("\ufeff").replace("\0", "")
