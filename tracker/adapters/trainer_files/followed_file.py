"""Reads one growing file: nothing twice, nothing lost, whatever happens to the file meanwhile.

    file = FollowedFile(path, cursor)
    while (part := file.read()) is not None:
        part.lines, part.cursor

A file that is renamed or deleted is read to its end through the open descriptor. One that is truncated, or was rotated
while it was not followed, is completed from its copy beside it, packed or not, which is recognised by its content.
"""

import gzip
import hashlib
import logging
import os
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from io import BufferedReader
from pathlib import Path
from typing import Protocol

from eval_jobs import limits
from eval_jobs.host.bounded.files import open_regular
from tracker.domain.health.logs.cursor import HEAD_BYTES, TAIL_BYTES, Cursor
from tracker.domain.health.logs.step_lines import StepRow
from tracker.domain.health.logs.text import MAX_LINE_BYTES, Piece, RawLine, TextState, encoding_of, split

log = logging.getLogger(__name__)

CHUNK_BYTES = 128 << 10
HOLE_BYTES = 512
MAX_COPIES = 20
"""Newest files beside a log that may be its rotated part."""


class _Content(Protocol):
    """The bytes of one file."""

    damage: Exception | None
    """Why a packed file ends before its content does."""

    def at(self, offset: int, most: int) -> bytes:
        """Return the bytes from `offset` on, at most `most`."""

    def after_hole(self, offset: int) -> int:
        """Return where data begins again: a writer of a truncated log leaves a hole, which may be huge."""

    def close(self) -> None:
        """Close the file."""


class _Plain:
    damage: Exception | None = None

    def __init__(self, file: BufferedReader) -> None:
        self._file = file

    @property
    def descriptor(self) -> int:
        return self._file.fileno()

    def at(self, offset: int, most: int) -> bytes:
        return os.pread(self._file.fileno(), most, offset)

    def after_hole(self, offset: int) -> int:
        try:
            return os.lseek(self._file.fileno(), offset, os.SEEK_DATA)
        except OSError:  # no data follows, or the file system does not know
            return offset

    def close(self) -> None:
        self._file.close()


class _Packed:
    """Keeps what the cursor looks at again: going back means to unpack from the begin."""

    def __init__(self, file: BufferedReader) -> None:
        self._file = file
        self._unpacked = gzip.GzipFile(fileobj=file)
        self.damage: Exception | None = None
        self._head = b""
        self._start, self._window = 0, b""

    def at(self, offset: int, most: int) -> bytes:
        try:
            self._head = self._head or self._unpacked.read(HEAD_BYTES)
            if offset + most <= len(self._head):
                return self._head[offset : offset + most]
            if not self._start <= offset <= self._start + len(self._window):
                self._start, self._window = offset, b""
            self._unpacked.seek(self._start + len(self._window))
            self._window += self._unpacked.read(max(0, offset + most - self._start - len(self._window)))
        except (OSError, EOFError, zlib.error) as error:  # damaged, or not written to its end yet
            self.damage = error
            return b""
        found = self._window[offset - self._start :][:most]
        passed = max(0, offset - TAIL_BYTES - self._start)
        self._start, self._window = self._start + passed, self._window[passed:]
        return found

    def after_hole(self, offset: int) -> int:
        return offset

    def close(self) -> None:
        self._unpacked.close()
        self._file.close()


@dataclass(frozen=True, kw_only=True)
class ReadPart:
    """What was read at once."""

    cursor: Cursor
    """After it."""
    is_history: bool
    lines: tuple[RawLine, ...] = ()
    rows: tuple[StepRow, ...] = ()
    """Of a file that is no text."""


class FollowedFile:
    """One log, from a cursor on; None: from its begin."""

    def __init__(self, path: Path, cursor: Cursor | None = None, *, is_history: bool = False) -> None:
        """Follow `path`; `is_history`: what it has now was written before the run was followed."""
        self.path = path
        self.rest = ""
        """The last line, which has no end yet."""
        self._cursor = cursor
        self._is_history = is_history
        self._file: _Plain | None = None
        self._copy: _Content | None = None
        """The rotated part of the file, to be read first."""
        self._drained_size: int | None = None

    def read(self) -> ReadPart | None:
        """Return the next lines; None: there are none.

        Raises:
            OSError: the file cannot be read, or is a pipe or a device.
        """
        file = self._file or self._opened()
        if file is None:
            return None
        if self._copy is not None:
            return self._read_copy(self._copy, file)
        cursor = self._at(file)
        size = os.fstat(file.descriptor).st_size
        if size < cursor.offset or (size > cursor.offset and not _is_same(file, cursor)):
            self._begin_again(file)
            return self.read()
        part = self._read_from(file)
        if part is None and self._is_replaced(file):
            part = self._last_line(file)
            self._follow_new()
            return part or self.read()
        return part

    def read_all(self) -> Iterator[ReadPart]:
        """Yield all that the file has now; its last line may have no end. One that ends in `.gz` is unpacked.

        Raises:
            OSError, EOFError, zlib.error: it cannot be read to its end, or is a pipe or a device.
        """
        content = _content_of(self.path)
        self._cursor = Cursor(inode=self.path.stat().st_ino)
        try:
            while (part := self._read_from(content)) is not None:
                yield part
            if content.damage is not None:
                raise content.damage
            if (last := self._last_line(content)) is not None:
                yield last
        finally:
            content.close()

    @property
    def cursor(self) -> Cursor | None:
        """How far the file was read; None: it was not opened yet."""
        return self._cursor

    def is_drained(self) -> bool:
        """Return whether nothing will follow: the file is deleted, and no process wrote to it since the last call."""
        if self._file is None:
            return True
        size = os.fstat(self._file.descriptor).st_size
        before, self._drained_size = self._drained_size, size
        return size == before

    def count_rest(self) -> Cursor | None:
        """Note that the trouble of the line without an end was counted, and return the cursor."""
        if self._cursor is not None:
            self._cursor = replace(self._cursor, has_rest_trouble=True)
        return self._cursor

    def close(self) -> None:
        """Close the file; the next `read` opens it again."""
        for content in (self._file, self._copy):
            if content is not None:
                content.close()
        self._file = self._copy = None

    def _at(self, file: _Plain) -> Cursor:
        if self._cursor is None:
            facts = os.fstat(file.descriptor)
            self._cursor = Cursor(inode=facts.st_ino)
            if self._is_history:
                self._cursor = replace(self._cursor, history_bytes=facts.st_size)
            if facts.st_size > limits.LOG.most and self._is_history:
                log.warning("read only the last %d MB of %s: it is too large", limits.LOG.most >> 20, self.path)
                text = TextState(encoding=encoding_of(file.at(0, HEAD_BYTES)), is_within=True)
                self._cursor = self._moved(file, self._cursor, facts.st_size - limits.LOG.most, text)
        return self._cursor

    def _opened(self) -> _Plain | None:
        """Open the file, and find where to continue; None: there is no file."""
        try:
            file = _Plain(open_regular(self.path))
        except FileNotFoundError:
            return None
        self._file = file
        if self._cursor is not None and not _is_same(file, self._cursor):
            self._begin_again(file)
        return file

    def _begin_again(self, file: _Plain) -> None:
        """Read the file from its begin, after what a copy beside it has of the old content."""
        if self._cursor is not None:
            self._copy = _copy_of(self.path, self._cursor)
        if self._copy is None:
            self._cursor = Cursor(inode=os.fstat(file.descriptor).st_ino)

    def _read_copy(self, copy: _Content, file: _Plain) -> ReadPart | None:
        part = self._read_from(copy)
        if part is None:
            part = self._last_line(copy)
            copy.close()
            self._copy = None
            self._cursor = Cursor(inode=os.fstat(file.descriptor).st_ino)
        return part or self.read()

    def _read_from(self, content: _Content) -> ReadPart | None:
        cursor = self._cursor
        if cursor is None:
            return None
        offset = content.after_hole(cursor.offset)
        data = content.at(offset, CHUNK_BYTES)
        zeros = _zeros_of_hole(data)
        piece = split(data[zeros:], cursor.text)
        self.rest = piece.rest
        if not piece.taken and zeros < CHUNK_BYTES:
            return None
        self._cursor = self._moved(content, cursor, offset + zeros + piece.taken, piece.state)
        return _part(piece, cursor, self._cursor)

    def _moved(self, content: _Content, cursor: Cursor, end: int, text: TextState) -> Cursor:
        moved = replace(cursor, offset=end, text=text, has_rest_trouble=False)
        head = content.at(0, moved.head_bytes)
        tail = content.at(end - moved.tail_bytes, moved.tail_bytes)
        return replace(moved, head=_hash(head), tail=_hash(tail))

    def _last_line(self, content: _Content) -> ReadPart | None:
        """Return the line without an end: no other bytes will follow it."""
        cursor, self.rest = self._cursor, ""
        if cursor is None or cursor.text.is_within:
            return None
        rest = content.at(cursor.offset, MAX_LINE_BYTES)
        if not rest:
            return None
        piece = split(rest + "\n".encode(cursor.text.encoding or "utf-8"), cursor.text)
        self._cursor = self._moved(content, cursor, cursor.offset + len(rest), piece.state)
        return _part(piece, cursor, self._cursor)

    def _is_replaced(self, file: _Plain) -> bool:
        try:
            return self.path.stat().st_ino != os.fstat(file.descriptor).st_ino
        except FileNotFoundError:
            return False  # deleted: its writer may still write to it

    def _follow_new(self) -> None:
        self.close()
        self._cursor, self._is_history = None, False


def _part(piece: Piece, before: Cursor, after: Cursor) -> ReadPart:
    lines = piece.lines
    if before.has_rest_trouble and lines:
        lines = (lines[0]._replace(is_known=True), *lines[1:])
    return ReadPart(lines=lines, cursor=after, is_history=before.offset < before.history_bytes)


def _zeros_of_hole(data: bytes) -> int:
    """Return how many zero bytes at the begin are a hole that the file system does not report; few may be text."""
    zeros = len(data) - len(data.lstrip(b"\0"))
    return 0 if zeros < HOLE_BYTES else zeros - zeros % 2  # UTF-16 has a zero in many pairs


def _is_same(content: _Content, cursor: Cursor) -> bool:
    """Return whether a content begins as the one that the cursor was made for, up to the cursor."""
    if not cursor.offset:
        return True
    tail_at = cursor.offset - cursor.tail_bytes
    if _hash(content.at(tail_at, cursor.tail_bytes)) != cursor.tail:
        return False
    return _hash(content.at(0, cursor.head_bytes)) == cursor.head


def _copy_of(path: Path, cursor: Cursor) -> _Content | None:
    """Return the file beside a log that has the content that the cursor was made for: its rotated part."""
    if not cursor.offset:
        return None
    for copy in _copies(path):
        with suppress(OSError):
            content = _content_of(copy)
            if _is_same(content, cursor):
                return content
            content.close()
    return None


def _content_of(path: Path) -> _Content:
    file = open_regular(path)
    return _Packed(file) if path.suffix == ".gz" else _Plain(file)


def _copies(path: Path) -> Iterator[Path]:
    found = []
    with suppress(OSError):
        for entry in os.scandir(path.parent):
            if entry.name != path.name and entry.name.startswith(path.name):
                found.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
    for _, copy in sorted(found, reverse=True)[:MAX_COPIES]:
        yield Path(copy)


def _hash(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()
