"""One HTTP request to a server on this machine, without a proxy.

It uses the standard library: httpx would cost every worker 6 MB and a tenth of a second, for three kinds of requests.
"""

import http.client
import json
from collections.abc import Mapping

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
    """Return status and body of the response.

    `place`: host and port; `timeout_s`: for each socket operation.

    Raises:
        OSError, http.client.HTTPException: see `ERRORS`.
    """
    connection = http.client.HTTPConnection(*place, timeout=timeout_s)
    try:
        connection.request(method, path, body, dict(headers or {}))
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def parsed_json(body: bytes) -> object:
    """Return the parsed JSON of a body; None if it is not JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
