"""Reads answers of others until a deadline and up to a limit of `eval_jobs.limits`.

MeteredReader(socket, until_s, limit)  decoded(chunks, "gzip", limit)
in_thread(name, work).result(seconds)
"""

import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from io import RawIOBase
from typing import Any, TypeVar

from eval_jobs import limits
from eval_jobs.host.bounded.json_text import TooLarge
from eval_jobs.limits import Limit

Result = TypeVar("Result")


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
