"""Kind and description of a failed request, and the pause before the next attempt; independent of the client."""

from datetime import UTC, datetime
from enum import Enum, auto
from typing import Protocol, runtime_checkable

import httpx

from eval_jobs.backoff import retry_after_s
from eval_jobs.evaluate.common.protocol import RetryPolicy
from eval_jobs.limits import cut

MAX_RETRY_AFTER_S = 60.0


class FailureKind(Enum):
    """Kind of a failed request."""

    SAMPLE = auto()
    """The server rejected this request."""
    KEY = auto()
    """The server rejected the API key."""
    SERVER = auto()
    """The server answers no request of this kind."""
    BUSY = auto()
    """The server is busy; retry later."""
    BROKEN = auto()
    """The connection or the response broke; retry soon."""
    SLOW = auto()
    """No response in time; an immediate retry would cost as much."""


@runtime_checkable
class ServerReply(Protocol):
    """An error with the server's response: openai's `APIStatusError` has this form, and so has `StatusError`."""

    status_code: int
    response: httpx.Response
    body: object
    message: str


class StatusError(Exception):
    """The server responded with an HTTP error status."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.status_code = response.status_code
        self.message = response.text[:300] or response.reason_phrase
        try:
            self.body: object = response.json()
        except ValueError:
            self.body = None
        if isinstance(self.body, dict):
            self.body = self.body.get("error", self.body)
        super().__init__(self.message)


_BY_STATUS = {
    **dict.fromkeys((400, 413, 422), FailureKind.SAMPLE),
    **dict.fromkeys((401, 403), FailureKind.KEY),
    **dict.fromkeys((408, 409, 425), FailureKind.BROKEN),
    **dict.fromkeys((429, 503, 529), FailureKind.BUSY),
}


def classify_failure(error: Exception) -> FailureKind:
    """Return the kind of a failed request."""
    if isinstance(error, httpx.TimeoutException) or isinstance(error.__cause__, httpx.TimeoutException):
        return FailureKind.SLOW
    reply = _refusal(error)
    if reply is None:
        return FailureKind.BROKEN
    otherwise = FailureKind.BROKEN if reply.status_code >= 500 else FailureKind.SERVER
    return _BY_STATUS.get(reply.status_code, otherwise)


def describe(error: Exception) -> str:
    """Return one readable line: the server's message if there is one."""
    reply = _refusal(error)
    if reply is not None:
        body = reply.body if isinstance(reply.body, dict) else {}
        return f"HTTP {reply.status_code}: {cut(str(body.get('message') or reply.message))}"
    cause = error.__cause__
    text = cut(f"{type(error).__name__}: {error}")
    if cause is not None and str(cause) not in text:
        return f"{text} ({cause})"
    return text


def pause_s(error: Exception, attempt: int, policy: RetryPolicy) -> float | None:
    """Return the seconds to wait after failed attempt number `attempt`, from 0; None if there is no next one.

    A longer Retry-After of the server is respected, up to `MAX_RETRY_AFTER_S`.
    """
    of_its_kind = {FailureKind.BUSY: policy.busy_s, FailureKind.BROKEN: policy.broken_s}
    pauses = of_its_kind.get(classify_failure(error), ())
    if attempt >= len(pauses):
        return None
    return max(pauses[attempt], retry_after_of(error))


def retry_after_of(error: Exception) -> float:
    """Return the seconds in a Retry-After header (a number or a date), between 0 and `MAX_RETRY_AFTER_S`."""
    reply = _refusal(error)
    if reply is None:
        return 0.0
    header = reply.response.headers.get("retry-after", "")
    return retry_after_s(header, datetime.now(UTC), longest_s=MAX_RETRY_AFTER_S) or 0.0


def _refusal(error: Exception) -> ServerReply | None:
    """Return the error if the server sent an error status; one for an unreadable body may have a success status."""
    if isinstance(error, ServerReply) and error.status_code >= 300:
        return error
    return None
