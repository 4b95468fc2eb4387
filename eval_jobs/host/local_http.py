"""One HTTP request to a server on this machine, without a proxy.

It uses the standard library: httpx would cost every worker 6 MB and a tenth of a second, for three kinds of requests.
"""

import http.client
import io
import socket
import time
from collections.abc import Mapping
from functools import partial

from eval_jobs import limits
from eval_jobs.host.bounded.answers import MeteredReader
from eval_jobs.host.bounded.json_text import TooLarge, parse_json

ERRORS = (OSError, http.client.HTTPException)
"""Raised by `request` if there is no complete response."""
NO_ANSWER = (OSError, http.client.IncompleteRead, http.client.RemoteDisconnected)
"""The subset of a server that starts or ends. The other errors mean that the peer does not use HTTP."""


def request(
    method: str,
    place: tuple[str, int],
    path: str,
    *,
    timeout_s: float,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> tuple[int, bytes]:
    """Return status and body of the response, at most `limits.REPLY`.

    `place`: host and port; `timeout_s`: for the whole response.

    Raises:
        OSError, http.client.HTTPException: see `ERRORS`.
    """
    deadline_s = time.monotonic() + timeout_s
    connection = http.client.HTTPConnection(*place, timeout=timeout_s)
    connection.response_class = partial(_timed_response, deadline_s)  # type: ignore[assignment]
    try:
        connection.request(method, path, body, dict(headers or {}))
        response = connection.getresponse()
        content = response.read(limits.REPLY.most + 1)
        if len(content) > limits.REPLY.most:
            raise http.client.HTTPException(f"response {TooLarge(limits.REPLY)}")
        if response.length:  # not noticed by `read` with a limit
            raise http.client.IncompleteRead(content, response.length)
        return response.status, content
    finally:
        connection.close()


def parsed_json(body: bytes) -> object:
    """Return the parsed JSON of a body; None if it is not JSON."""
    try:
        return parse_json(body)
    except ValueError:
        return None


def _timed_response(deadline_s: float, connection: socket.socket, method: str) -> http.client.HTTPResponse:
    response = http.client.HTTPResponse(connection, method=method)
    response.fp.close()
    response.fp = io.BufferedReader(MeteredReader(connection, deadline_s, limits.ANSWER))  # with its headers
    return response
