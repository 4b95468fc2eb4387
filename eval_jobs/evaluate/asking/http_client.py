"""HTTP client of the evaluator's child: it limits responses, masks the API key in them and cleans them.

It also counts the requests in flight: every request to the model goes through it.
"""

import json
import logging
import os
import re
from typing import Any

import httpx

from eval_jobs.errors import EndpointFailed
from eval_jobs.evaluate.asking.limiter import ConcurrencyLimiter
from eval_jobs.evaluate.common.answer_check import has_possible_usage
from eval_jobs.host.bounded.client import MAX_BYTES, BoundedClient
from eval_jobs.host.bounded.json_text import TooDeep, TooLarge, parse_json
from eval_jobs.host.bounded.replies import TOKEN_BYTES, answer_bytes, storable
from eval_jobs.host.secrets import masked

log = logging.getLogger(__name__)

ALIVE_TIMEOUT_S = 10.0
_MAY_BE_UNSTORABLE = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])|\x00|\xed[\xa0-\xbf]")
"""An escaped or plain NUL or half surrogate; also a whole pair."""


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
    except Exception as error:  # noqa: BLE001 - a response that is no HTTP breaks a client at any place
        log.info("server not responding: %s", error)
        return False
    return status < httpx.codes.INTERNAL_SERVER_ERROR


class ModelClient(BoundedClient):
    """A client for answers: `max_tokens` limits their size, see `limits.ANSWER`.

    It sends the key `secret`, and masks it in responses: a server that repeats the key, in an error or in an answer,
    would bring it into files, databases and reports. Every POST request takes a slot of `limiter`; after a failure the
    slot stays taken until its thread releases it.
    """

    def __init__(self, timeout_s: float, limiter: ConcurrencyLimiter, *, secret: str, max_tokens: int) -> None:
        super().__init__(timeout_s, {"Authorization": f"Bearer {secret}"})
        self._max_bytes = answer_bytes(max_tokens, TOKEN_BYTES)
        self._limiter = limiter
        self._secret = secret

    def send(self, request: httpx.Request, **options: Any) -> httpx.Response:  # noqa: ANN401 - httpx's own
        """Send a request, once there is a slot for it."""
        if request.method != "POST":
            return self._sent(request, **options)
        if not self._limiter.acquire():
            raise httpx.ConnectError("evaluation stopped before the request was sent", request=request)
        request.extensions.setdefault(MAX_BYTES, self._max_bytes)
        response = self._sent(request, **options)
        if response.is_success:
            self._limiter.release()
        return response

    def _sent(self, request: httpx.Request, **options: Any) -> httpx.Response:  # noqa: ANN401 - httpx's own
        response = super().send(request, **options)
        text = response.content.decode("latin-1")  # any byte, and back to the same
        shown = _kept(masked(text, (self._secret,)).encode("latin-1"))
        if shown == response.content:
            return response
        left_out = ("content-length", "transfer-encoding")
        headers = [(name, value) for name, value in response.headers.multi_items() if name not in left_out]
        return httpx.Response(response.status_code, headers=headers, content=shown, request=request)


def _kept(content: bytes) -> bytes:
    """Return the body of a response as it can be read and stored: the same bytes, if nothing is wrong with it."""
    try:
        body = parse_json(content)
        kept = storable(body) if _MAY_BE_UNSTORABLE.search(content) else body
    except (TooLarge, TooDeep):
        return b""  # no answer
    except ValueError:  # an error page is shown
        return content.replace(b"\0", b" ")
    if isinstance(kept, dict) and not has_possible_usage(kept):
        kept = {**kept, "usage": None}
    return content if kept is body else json.dumps(kept).encode()
