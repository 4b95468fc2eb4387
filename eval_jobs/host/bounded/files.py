"""Reads files of others up to a limit of `eval_jobs.limits`.

read_bytes(path, limits.DOCUMENT)      lines_of(path, limits.ROW)
"""

import hashlib
import os
import stat
from collections.abc import Iterator
from errno import EINVAL
from io import BufferedReader, FileIO
from pathlib import Path

from eval_jobs import limits
from eval_jobs.host.bounded.json_text import TooLarge
from eval_jobs.limits import Limit


def read_bytes(path: Path, limit: Limit) -> bytes:
    """Return the content of a regular file.

    Raises:
        TooLarge: it is larger than the limit.
        OSError: it cannot be read, or is not a regular file.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit.most:
            raise TooLarge(limit)
        content = file.read(size + 1)  # `read` sets aside as much memory as it may return
        if len(content) > size:  # it has grown meanwhile, or has no size, as in /proc
            content += file.read(limit.most + 1 - len(content))
    if len(content) > limit.most:
        raise TooLarge(limit)
    return content


def text_of(path: Path, limit: Limit, *, encoding: str = "utf-8", errors: str = "strict") -> str:
    """Return the text of a regular file.

    Raises:
        TooLarge: it is larger than the limit.
        UnicodeDecodeError: it is no text in `encoding`.
        OSError: it cannot be read, or is not a regular file.
    """
    return read_bytes(path, limit).decode(encoding, errors)


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading in bytes. A pipe or device is an OSError, without waiting for its writer."""
    file: BufferedReader = BufferedReader(FileIO(path, opener=_open))
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise OSError(EINVAL, "it is not a regular file", str(path))


def file_digest(path: Path, limit: Limit = limits.SERVED_FILE) -> str:
    """Return the hex SHA-256 of a file; by default one beside the weights.

    Raises:
        TooLarge: it is larger than the limit.
        OSError: it cannot be read, or is not a regular file.
    """
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > limit.most:
            raise TooLarge(limit)
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


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
