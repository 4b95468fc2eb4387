"""Reads files and answers of others up to a limit of `eval_jobs.limits`.

read_bytes(path, limits.DOCUMENT)      lines_of(path, limits.ROW)
MeteredReader(socket, until_s, limit)  decoded(chunks, "gzip", limit)
in_thread(name, work).result(seconds)
"""

import hashlib
import os
import socket
import stat
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from errno import EINVAL
from io import BufferedReader, FileIO, RawIOBase
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from eval_jobs import limits
from eval_jobs.host.json_text import TooLarge
from eval_jobs.limits import Limit

Result = TypeVar("Result")


def read_bytes(path: Path, limit: Limit) -> bytes:
    """Return the content of a regular file.

    Raises:
        TooLarge: it is larger than the limit.
        OSError: it cannot be read, or is not a regular file.
    """
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > limit.most:
            raise TooLarge(limit)
        return read_from(file, limit)  # it may grow meanwhile


def read_text(path: Path, limit: Limit, *, encoding: str = "utf-8", errors: str = "strict") -> str:
    """Return the text of a regular file.

    Raises:
        TooLarge: it is larger than the limit.
        UnicodeDecodeError: it is no text in `encoding`.
        OSError: it cannot be read, or is not a regular file.
    """
    return read_bytes(path, limit).decode(encoding, errors)


def read_from(file: BinaryIO, limit: Limit) -> bytes:
    """Return the rest of an open file or answer.

    Raises:
        TooLarge: it is larger than the limit.
        OSError: it cannot be read.
    """
    content = file.read(limit.most + 1)
    if len(content) > limit.most:
        raise TooLarge(limit)
    return content


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading in bytes. A pipe or device is an OSError, without waiting for its writer."""
    file: BufferedReader = BufferedReader(FileIO(path, opener=_open))
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise OSError(EINVAL, "it is not a regular file", str(path))


def file_digest(path: Path) -> str:
    """Return the hex SHA-256 of a file beside the weights.

    Raises:
        TooLarge: it is larger than `limits.SERVED_FILE`.
        OSError: it cannot be read, or is not a regular file.
    """
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > limits.SERVED_FILE.most:
            raise TooLarge(limits.SERVED_FILE)
        return hashlib.file_digest(file, "sha256").hexdigest()


def tail_of(path: Path, most: int = 64 << 10) -> bytes:
    """Return the last `most` bytes of a file, such as a log.

    Raises:
        OSError: it cannot be read, or is not a regular file.
    """
    with open_regular(path) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - most))
        return file.read(most)


def last_line_of(path: Path) -> str:
    """Return the last line of a log that is not empty, or what is known instead."""
    try:
        lines = tail_of(path).decode(errors="replace").split("\n")
    except OSError:
        return "cannot read its log"
    for line in reversed(lines):
        if line.strip():
            return line.strip()
    return "no output"


def lines_of(path: Path, limit: Limit) -> Iterator[bytes]:
    """Return the lines of a regular file, without their ends.

    Raises:
        TooLarge: a line is larger than the limit.
        OSError: the file cannot be read, or is not a regular one.
    """
    with open_regular(path) as file:
        while line := file.readline(limit.most + 1):
            if len(line) > limit.most:
                raise TooLarge(limit)
            yield line.rstrip(b"\r\n")


def decoded(chunks: Iterable[bytes], encoding: str, limit: Limit) -> bytes:
    """Return the body of an answer with the header `Content-Encoding: encoding`, read until the limit.

    Raises:
        TooLarge: it is larger without its compression.
        ValueError: the compression is unknown, or broken.
    """
    if encoding not in {"", "identity", "gzip"}:
        raise ValueError(f"unexpected Content-Encoding {limits.cut(encoding)!r}")
    inflating = zlib.decompressobj(16 + zlib.MAX_WBITS)
    content = bytearray()
    for chunk in chunks:
        content += chunk if encoding != "gzip" else _inflated(inflating, chunk, limit.most + 1 - len(content))
        if len(content) > limit.most:
            raise TooLarge(limit)
    return bytes(content)


def _inflated(inflating: Any, chunk: bytes, most: int) -> bytes:  # noqa: ANN401 - zlib has no public type for it
    try:
        content: bytes = inflating.decompress(chunk, most)
    except zlib.error as error:
        raise ValueError(f"broken gzip: {error}") from error
    if inflating.unused_data:
        raise ValueError("broken gzip: more after its end")
    return content


class MeteredReader(RawIOBase):
    """The bytes from a socket until a time and up to a limit. A socket's own timeout begins again with every byte."""

    def __init__(self, connection: socket.socket, until_s: float, limit: Limit) -> None:
        """Begin to read; `until_s` is a time of `time.monotonic`."""
        self._socket, self._until_s, self._limit = connection, until_s, limit
        self._pause_s = connection.gettimeout()
        self._raw = connection.makefile("rb", buffering=0)
        self._left = limit.most

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int | None:  # noqa: ANN401 - as in its base
        """Read what has arrived.

        Raises:
            TimeoutError: the time is over.
            OSError: more than the limit arrives, or the connection is lost.
        """
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the answer takes too long")
        self._socket.settimeout(min(left_s, self._pause_s or left_s))
        count = self._raw.readinto(buffer)
        self._left -= count or 0
        if self._left < 0:
            raise OSError(f"the answer {TooLarge(self._limit)}")
        return count

    def close(self) -> None:
        """Close the reader; the connection stays open."""
        self._raw.close()
        super().close()


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def in_thread(name: str, work: Callable[[], Result]) -> Future[Result]:
    """Begin `work`, which may hang, in a thread that does not keep the process from ending; return its outcome."""
    outcome: Future[Result] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is waited for
            outcome.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return outcome
