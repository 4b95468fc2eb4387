"""HTTP client of the evaluator's child: it limits the time and size of a response and masks the API key in it.

It also counts the requests in flight: every request to the model goes through it.
"""

import logging
import os
import time
from collections.abc import Iterator
from functools import cache
from ssl import SSLContext
from typing import Any

import httpx

from eval_jobs.errors import EndpointFailed
from eval_jobs.evaluate.asking.limiter import ConcurrencyLimiter
from eval_jobs.host.secrets import masked

log = logging.getLogger(__name__)

ALIVE_TIMEOUT_S = 10.0
MAX_ANSWER_BYTES = 64 * 2**20
MAX_CONNECTIONS = 1000


def api_key(variable: str) -> str:
    """Return the API key in an environment variable; without a variable, a placeholder.

    Raises:
        EndpointFailed: the variable is not set.
    """
    key = os.environ.get(variable, "") if variable else "EMPTY"
    if not key:
        raise EndpointFailed(f"the environment variable {variable} is not set", hint="set it to the endpoint's API key")
    return key


def is_alive(client: httpx.Client, base_url: str) -> bool:
    """Return whether a server responds, with a status below 500."""
    try:
        status = client.get(f"{base_url}/models", timeout=ALIVE_TIMEOUT_S).status_code
    except (httpx.HTTPError, ValueError) as error:
        log.info("server not responding: %s", error)
        return False
    return status < httpx.codes.INTERNAL_SERVER_ERROR


@cache
def _certificates() -> SSLContext:
    """Load the machine's CA certificates once per process: this is the slowest part of creating a client."""
    return httpx.create_ssl_context()


class ModelClient(httpx.Client):
    """A client whose responses must be complete `timeout_s` after their headers.

    It sends the key `secret`, and masks it in responses. Every POST request takes a slot of `limiter`; after a failure
    the slot stays taken until its thread releases it.

    The timeout of an HTTP library counts from one byte to the next. A server that sends a byte now and then, or that
    never stops sending, would keep a request open forever. A server that repeats the key, in an error or in an answer,
    would bring it into files, databases and reports.
    """

    def __init__(self, timeout_s: float, limiter: ConcurrencyLimiter, *, secret: str) -> None:
        super().__init__(
            verify=_certificates(),
            timeout=timeout_s,
            headers={"Authorization": f"Bearer {secret}"},
            limits=httpx.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_CONNECTIONS),
            follow_redirects=True,
            event_hooks={"response": [self._limit]},
        )
        self._timeout_s = timeout_s
        self._limiter = limiter
        self._secret = secret

    def send(self, request: httpx.Request, **options: Any) -> httpx.Response:  # noqa: ANN401 - httpx's own
        """Send a request, once there is a slot for it."""
        if request.method != "POST":
            return self._sent(request, **options)
        if not self._limiter.acquire():
            raise httpx.ConnectError("evaluation stopped before the request was sent", request=request)
        response = self._sent(request, **options)
        if response.is_success:
            self._limiter.release()
        return response

    def _limit(self, response: httpx.Response) -> None:
        if isinstance(response.stream, httpx.SyncByteStream):
            response.stream = _Limited(response.stream, response.request, time.monotonic() + self._timeout_s)

    def _sent(self, request: httpx.Request, **options: Any) -> httpx.Response:  # noqa: ANN401 - httpx's own
        response = super().send(request, **options)
        if options.get("stream"):  # no caller sets it
            response.read()
        text = response.content.decode("latin-1")  # any byte, and back to the same
        shown = masked(text, (self._secret,))
        if shown == text:
            return response
        left_out = ("content-length", "content-encoding", "transfer-encoding")
        headers = [(name, value) for name, value in response.headers.multi_items() if name not in left_out]
        return httpx.Response(response.status_code, headers=headers, content=shown.encode("latin-1"), request=request)


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
                raise httpx.ReadTimeout("response not complete in time", request=self._request)
            if received > MAX_ANSWER_BYTES:
                raise httpx.ReadError(f"response exceeds {MAX_ANSWER_BYTES} bytes", request=self._request)
            yield part

    def close(self) -> None:
        self._stream.close()
