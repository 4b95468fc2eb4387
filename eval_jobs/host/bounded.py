"""Reads files and JSON texts of others up to a limit of `eval_jobs.limits`.

read_bytes(path, limits.DOCUMENT)      parse_json(text)      lines_of(path, limits.ROW)
"""

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from errno import EINVAL
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Any, BinaryIO

from eval_jobs import limits
from eval_jobs.limits import Limit

_SCALES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


class TooLarge(ValueError):
    """A file or text of others is larger than its limit. The message continues the name of the file."""

    def __init__(self, limit: Limit) -> None:
        super().__init__(f"is larger than {amount(limit)}")


def amount(limit: Limit) -> str:
    """Return how much a limit accepts, with its unit."""
    for scale, unit in _SCALES if limit.unit == "bytes" else ():
        if limit.most >= scale:
            return f"{limit.most // scale} {unit}"
    return f"{limit.most:,} {limit.unit}"


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


def parse_json(text: str | bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value in a JSON text.

    Raises:
        TooLarge: it has too many values for the memory.
        ValueError: it is not valid JSON, is nested too deeply, or has a whole number with too many digits.
    """
    # Each value but the first of a list or object follows a comma, and each list or object has a bracket.
    text = text if isinstance(text, bytes) else text.encode(errors="surrogatepass")
    values = text.count(b",") + text.count(b"[") + text.count(b"{")
    if values > limits.VALUES.most:
        raise TooLarge(limits.VALUES)
    try:
        return json.loads(text, parse_int=_whole_number)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _whole_number(digits: str) -> int:
    if len(digits) > limits.DIGITS.most:
        raise ValueError(f"a number has {len(digits)} digits")
    return int(digits)
