"""An HTTP client for endpoints that anybody may run: the time and size of a whole response are bounded.

The timeout of an HTTP library counts from one byte to the next. A server that sends a byte now and then, or headers
without an end, would keep a request open forever. httpx decompresses a part of any size at once.
"""

import json
import threading
import time
import zlib
from collections.abc import Iterator
from typing import Any, Self

import httpcore
import httpx

from eval_jobs import limits
from eval_jobs.host.replies import MAX_REDIRECTS, redirect_problem

MAX_BYTES = "max_bytes"
"""Extension of a request: limit of its decompressed response; `limits.REPLY` without it."""
INCOMPLETE = "response not complete in time"
PART_BYTES = 1 << 16
_WBITS = {"gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}


class BoundedClient(httpx.Client):
    """A client whose responses are complete, with redirects, headers and body, within the read timeout."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - httpx's own
        headers = {"Accept-Encoding": "identity", **options.pop("headers", {})}
        options |= {"headers": headers, "event_hooks": {"response": [_bound]}}
        super().__init__(follow_redirects=True, max_redirects=MAX_REDIRECTS, **options)
        self._own = threading.local()
        for transport in (self._transport, *self._mounts.values()):
            if isinstance(transport, httpx.HTTPTransport):
                pool: Any = transport._pool  # noqa: SLF001 - httpx has no setting for it
                pool._network_backend = _Timed(pool._network_backend, self._own)  # noqa: SLF001

    def send(self, request: httpx.Request, **options: Any) -> httpx.Response:  # noqa: ANN401 - httpx's own
        """Send a request and receive the whole response."""
        self._own.deadline_s = time.monotonic() + request.extensions["timeout"]["read"]
        response = super().send(request, **options)
        response.read()
        return response


class _Timed:
    """A network backend of httpcore, or one of its streams: each read ends at the deadline of its thread's request."""

    def __init__(self, inner: Any, own: threading.local) -> None:  # noqa: ANN401 - either of them
        self._inner = inner
        self._own = own

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any method
        return getattr(self._inner, name)

    def connect_tcp(self, *arguments: Any, **named: Any) -> Self:  # noqa: ANN401 - httpcore's own
        return type(self)(self._inner.connect_tcp(*arguments, **named), self._own)

    def start_tls(self, *arguments: Any, **named: Any) -> Self:  # noqa: ANN401 - httpcore's own
        return type(self)(self._inner.start_tls(*arguments, **named), self._own)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002 - at most what is left
        left_s = self._own.deadline_s - time.monotonic()
        if left_s <= 0:
            raise httpcore.ReadTimeout(INCOMPLETE)
        try:
            content: bytes = self._inner.read(max_bytes, left_s)
        except httpcore.ReadTimeout as error:
            raise httpcore.ReadTimeout(INCOMPLETE) from error
        return content


def _bound(response: httpx.Response) -> None:
    """Bound the body, and refuse a redirect to another host, which becomes a response with the reason."""
    assert isinstance(response.stream, httpx.SyncByteStream)  # noqa: S101 - the client is not asynchronous
    response.stream = _Bounded(response, response.stream)
    if response.has_redirect_location:
        problem = redirect_problem(str(response.url), response.headers["location"])
        if problem:
            response.stream.close()
            response.stream = httpx.ByteStream(json.dumps({"error": {"message": problem}}).encode())
            del response.headers["location"]


class _Bounded(httpx.SyncByteStream):
    def __init__(self, response: httpx.Response, stream: httpx.SyncByteStream) -> None:
        self._stream = stream
        self._most = response.request.extensions.get(MAX_BYTES, limits.REPLY.most)
        self._encoding = response.headers.pop("content-encoding", "identity").lower()

    def __iter__(self) -> Iterator[bytes]:
        received = 0
        for part in self._decoded():
            received += len(part)
            if received > self._most:
                raise httpx.ReadError(f"response exceeds {self._most} bytes")
            yield part

    def _decoded(self) -> Iterator[bytes]:
        """Yield the body in parts of bounded size; a compressed one was not requested."""
        if self._encoding == "identity":
            yield from self._stream
            return
        if self._encoding not in _WBITS:
            raise httpx.DecodingError(f"response is encoded as {limits.cut(self._encoding)}, which was not requested")
        inflate = zlib.decompressobj(_WBITS[self._encoding])
        for part in self._stream:
            rest = part
            while rest:
                yield inflate.decompress(rest, PART_BYTES)
                rest = inflate.unconsumed_tail
        if not inflate.eof:
            raise httpx.DecodingError("response ends within its compressed body")

    def close(self) -> None:
        self._stream.close()
