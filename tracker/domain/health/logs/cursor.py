"""How far a log was read, and what is read of it next. Pure."""

from dataclasses import dataclass, field

from tracker.domain.health.logs.step_lines import StepRow
from tracker.domain.health.logs.streams import Stream
from tracker.domain.health.logs.text import RawLine, TextState

HEAD_BYTES = 256
TAIL_BYTES = 64


ROW_CHARS = 100
"""Number of characters that a row of a log without text counts as."""


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """How far a file was read, and how to recognise it after it was renamed, copied or replaced."""

    inode: int
    offset: int = 0
    """Bytes that were read as lines."""
    head: str = ""
    """Hash of the first bytes, at most `HEAD_BYTES`, all of them before `offset`."""
    tail: str = ""
    """Hash of the bytes before `offset`, at most `TAIL_BYTES`."""
    history_bytes: int = 0
    """Size of the file when following began; everything before that is history."""
    text: TextState = field(default_factory=TextState)
    has_rest_trouble: bool = False
    """Whether the line without an end after `offset` shows trouble that was counted."""

    @property
    def head_bytes(self) -> int:
        """Number of bytes that `head` covers."""
        return min(HEAD_BYTES, self.offset)

    @property
    def tail_bytes(self) -> int:
        """Number of bytes that `tail` covers."""
        return min(TAIL_BYTES, self.offset)


@dataclass(frozen=True, kw_only=True)
class LogPiece:
    """What was read of one log at once."""

    path: str
    """Absolute; it identifies the log."""
    run_id: str
    stream: Stream
    cursor: Cursor
    """After the piece."""
    lines: tuple[RawLine, ...] = ()
    rows: tuple[StepRow, ...] = ()
    """Of a log whose content is not text."""
    rest: str = ""
    """The last line, if it has had no end for a while; else empty."""

    @property
    def chars(self) -> int:
        """Length of its text."""
        return ROW_CHARS * len(self.rows) + sum(len(line.text) for line in self.lines)
