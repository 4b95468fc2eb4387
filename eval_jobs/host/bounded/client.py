"""An HTTP client for endpoints that anybody may run: the time and size of a whole response are bounded.

The timeout of an HTTP library counts from one byte to the next. A server that sends a byte now and then, or headers
without an end, would keep a request open forever. httpx decompresses a part of any size at once.
"""

import json
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Protocol

import httpx

from eval_jobs import limits
from eval_jobs.host.bounded.replies import redirect_problem

MAX_BYTES = "max_bytes"
"""Extension of a request: limit of its decompressed response; `limits.REPLY` without it."""
MAX_CONNECTIONS = 1000
PART_BYTES = 1 << 16
_certificates = cache(httpx.create_ssl_context)
"""The machine's, loaded once per process: this is the slowest part of creating a client."""
_WBITS = {"gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}


class BoundedClient(httpx.Client):
    """A client whose responses are complete, with redirects, headers and body, within the read timeout."""

    def __init__(self, timeout_s: float, headers: Mapping[str, str], *, trust_env: bool = True) -> None:
        super().__init__(
            verify=_certificates(),
            timeout=timeout_s,
            headers={"Accept-Encoding": "identity", **headers},
            limits=httpx.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_CONNECTIONS),
            follow_redirects=True,
            event_hooks={"response": [_bound]},
            trust_env=trust_env,
        )
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


class _Reads(Protocol):
    def read(self, max_bytes: int, timeout: float | None, /) -> bytes: ...


class _Timed:
    """A network backend of httpcore, or one of its streams: each read ends at the deadline of its thread's request."""

    def __init__(self, inner: _Reads, own: threading.local) -> None:
        self._inner = inner
        self._own = own

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any method
        method = getattr(self._inner, name)
        if name in ("connect_tcp", "start_tls"):  # they return a stream
            return lambda *arguments, **named: _Timed(method(*arguments, **named), self._own)
        return method

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002 - all that is left
        left_s = self._own.deadline_s - time.monotonic()
        if left_s <= 0:
            raise httpx.ReadTimeout("response not complete in time")
        return self._inner.read(max_bytes, left_s)


def _bound(response: httpx.Response) -> None:
    """Bound the body, and refuse a redirect to another host, which becomes a response with the reason."""
    assert isinstance(response.stream, httpx.SyncByteStream)  # noqa: S101 - the client is not asynchronous
    response.stream = _Bounded(response, response.stream)
    problem = redirect_problem(str(response.url), response.headers.get("location", ""))
    if response.has_redirect_location and problem:
        response.stream.close()
        response.stream = httpx.ByteStream(json.dumps({"error": {"message": problem}}).encode())
        del response.headers["location"]


class _Bounded(httpx.SyncByteStream):
    """A body, decompressed in small parts up to a limit. Unknown encodings stay as they are: none was requested."""

    def __init__(self, response: httpx.Response, stream: httpx.SyncByteStream) -> None:
        self._stream = stream
        self._most = limits.REPLY.most  # an error may repeat the prompt
        if response.is_success:
            self._most = response.request.extensions.get(MAX_BYTES, self._most)
        self._wbits = _WBITS.get(response.headers.pop("content-encoding", "").lower())

    def __iter__(self) -> Iterator[bytes]:
        received = 0
        for part in self._stream if self._wbits is None else self._inflated(self._wbits):
            received += len(part)
            if received > self._most:
                raise httpx.ReadError(f"response exceeds {self._most} bytes")
            yield part

    def _inflated(self, wbits: int) -> Iterator[bytes]:
        inflate = zlib.decompressobj(wbits)
        for part in self._stream:
            rest = part
            while rest:
                try:
                    decoded = inflate.decompress(rest, PART_BYTES)
                except zlib.error as error:
                    raise httpx.DecodingError(str(error)) from error
                yield decoded
                rest = inflate.unconsumed_tail
        if not inflate.eof:
            raise httpx.DecodingError("response ends within its compressed body")

    def close(self) -> None:
        self._stream.close()
