"""Answers over HTTP that are there within a time and up to a size, for libraries that use requests: MLflow, apprise.

requests limits the time between two bytes only, reads any size, and follows redirects to any server.
"""

import http.client
import io
import logging
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.exceptions import HTTPError
from urllib3.util import Retry

from eval_jobs import limits
from eval_jobs.host.bounded.answers import MeteredReader, decoded
from eval_jobs.host.bounded.json_text import demand_few_values
from eval_jobs.host.bounded.replies import redirect_problem
from eval_jobs.limits import Limit

ANSWER_S = 30.0
"""Longest time from the end of a request to the end of its answer; at least the client's timeout between two bytes."""
_FRAME_BYTES = 1 << 20
"""Headers and chunk sizes around a body."""
_BLOCK_BYTES = 64 << 10

logging.getLogger("urllib3").setLevel(logging.ERROR)  # it logs broken headers with tracebacks


@dataclass
class _Conversation:
    until_s: float
    left_bytes: int


_CONVERSATION: ContextVar[_Conversation | None] = ContextVar("conversation", default=None)


@contextmanager
def conversation(most_s: float, limit: Limit) -> Iterator[None]:
    """Limit all requests in this context together: pages of a list may never end."""
    token = _CONVERSATION.set(_Conversation(time.monotonic() + most_s, limit.most))
    try:
        yield
    finally:
        _CONVERSATION.reset(token)


class BoundedAdapter(HTTPAdapter):
    """Sends the requests of a `requests.Session`."""

    def __init__(self, answer_s: float, limit: Limit, *, max_retries: Retry | int = 0) -> None:
        self.answer_s, self._limit = answer_s, limit
        super().__init__(max_retries=max_retries)

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as in its base
        """Return the connections to a server, with a deadline for each answer."""
        pool = super().get_connection_with_tls_context(*args, **kwargs)
        kind = pool.ConnectionCls
        if not issubclass(kind, _Timed):
            answer = staticmethod(partial(_answer, self.answer_s, self._limit))
            pool.ConnectionCls = type(kind.__name__, (_Timed, kind), {"response_class": answer})
        return pool

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:  # noqa: ANN401
        """Send a request and return its answer, with its whole body.

        Raises:
            requests.RequestException: no answer in time, one that is too large or broken, or a redirect elsewhere.
        """
        request.headers["Accept-Encoding"] = "gzip"
        response = super().send(request, *args, **{**kwargs, "stream": True})
        try:
            if response.is_redirect:
                problem = redirect_problem(str(request.url), response.headers["Location"])
                if problem:
                    raise ValueError(problem)
            # The body is not read by requests, which has no limit.
            response._content = _body(response, self._limit)  # noqa: SLF001
            response._content_consumed = True  # noqa: SLF001
        except (HTTPError, OSError, ValueError) as error:
            response.close()
            raise requests.ConnectionError(limits.cut(str(error)), request=request) from error
        response.encoding = response.encoding or "utf-8"  # guessing it takes minutes for a large body
        return response


def _body(response: requests.Response, limit: Limit) -> bytes:
    begun = _CONVERSATION.get()
    if begun is not None:
        limit = replace(limit, most=begun.left_bytes)
    chunks = response.raw.stream(_BLOCK_BYTES, decode_content=False)
    content = decoded(chunks, response.headers.get("Content-Encoding", "").lower(), limit)
    demand_few_values(content)
    if begun is not None:
        begun.left_bytes -= len(content)
    return content


class _Timed(HTTPConnection):
    """Mixed into urllib3's classes of connections."""

    def send(self, data: Any) -> None:  # noqa: ANN401 - as in its base
        begun = _CONVERSATION.get()
        if begun is not None and time.monotonic() > begun.until_s:
            raise TimeoutError("the server reads too slowly")
        super().send(data)


def _answer(answer_s: float, limit: Limit, connection: socket.socket, method: str) -> http.client.HTTPResponse:
    answer = http.client.HTTPResponse(connection, method=method)
    until_s, begun = time.monotonic() + max(answer_s, connection.gettimeout() or 0), _CONVERSATION.get()
    if begun is not None:
        until_s = min(until_s, begun.until_s)
    answer.fp.close()
    limit = replace(limit, most=limit.most + _FRAME_BYTES)
    answer.fp = io.BufferedReader(MeteredReader(connection, until_s, limit))
    return answer
