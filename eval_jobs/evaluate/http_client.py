"""The HTTP client of the evaluator's child: no answer may take for ever or fill the memory."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx

MAX_ANSWER_BYTES = 64 * 2**20
MAX_CONNECTIONS = 1000


def http_client(timeout_s: float) -> httpx.Client:
    """Return a client whose answers must be whole `timeout_s` after their first line.

    The timeout of an HTTP library counts from one byte to the next: a server that sends a byte now and then, or that
    never stops sending, would keep a request busy for ever.
    """

    def limit(response: httpx.Response) -> None:
        if isinstance(response.stream, httpx.SyncByteStream):
            response.stream = _Limited(response.stream, response.request, time.monotonic() + timeout_s)

    return httpx.Client(
        timeout=timeout_s,
        limits=httpx.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_CONNECTIONS),
        follow_redirects=True,
        event_hooks={"response": [limit]},
    )


# --- private


class _Limited(httpx.SyncByteStream):
    def __init__(self, stream: httpx.SyncByteStream, request: httpx.Request, deadline_s: float) -> None:
        self._stream = stream
        self._request = request
        self._deadline_s = deadline_s

    def __iter__(self) -> Iterator[bytes]:
        received = 0
        for part in self._stream:
            received += len(part)
            if time.monotonic() > self._deadline_s:
                raise httpx.ReadTimeout("the answer did not end in time", request=self._request)
            if received > MAX_ANSWER_BYTES:
                raise httpx.ReadError(f"the answer is longer than {MAX_ANSWER_BYTES} bytes", request=self._request)
            yield part

    def close(self) -> None:
        self._stream.close()
