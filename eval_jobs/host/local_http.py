"""One HTTP request to a server on this machine, past any proxy.

With the standard library: httpx would cost every worker 6 MB and a tenth of a second, for three kinds of question.
"""

import http.client
import json
from collections.abc import Mapping

ERRORS = (OSError, http.client.HTTPException)
"""What `request` raises where no whole answer came."""
NO_ANSWER = (OSError, http.client.IncompleteRead, http.client.RemoteDisconnected)
"""Those of them that a server gives which starts or ends; the others come from something that speaks no HTTP."""


def request(
    method: str,
    place: tuple[str, int],
    path: str,
    *,
    timeout_s: float,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> tuple[int, bytes]:
    """Return status and body of the answer.

    Args:
        method: GET or POST.
        place: host and port.
        path: of the route.
        timeout_s: for each wait.
        headers: further ones.
        body: what is sent.

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
    """Return the JSON in a body, None when it is none."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
