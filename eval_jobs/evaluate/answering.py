"""Who is to blame for a failed request: the sample, which then counts as not answered, or the server?

    gate = Gate(is_alive=..., limit=8)
    output = gate.ask(lambda: client.create(...))

A refused sample (400) is one sample's failure. A server that is gone, overloaded for long or refuses the key or the
model stops the evaluation at once: what was answered is kept, and a retry asks the rest. In between (500, a timeout,
a cut or unreadable answer) the server is asked whether it lives; `limit` such failures in a row stop the evaluation.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from enum import Enum, auto
from typing import TypeVar

import openai

from eval_jobs.errors import EndpointFailed

log = logging.getLogger(__name__)

T = TypeVar("T")

SHORT_PAUSES_S = (0.5, 1.5)
"""Before the second and third try when the connection or the answer broke."""
LONG_PAUSES_S = (1.0, 4.0, 16.0)
"""Before further tries when the server says that it is busy."""
MAX_RETRY_AFTER_S = 60.0
MIN_IN_A_ROW = 3

_OVERFLOW = re.compile(r"context length|maximum context|context window|too many tokens|max_model_len", re.IGNORECASE)


class Blame(Enum):
    """What a failed request says."""

    SAMPLE = auto()
    """This request was refused."""
    SERVER = auto()
    """No request of this kind will ever be answered."""
    BUSY = auto()
    """Try again later."""
    BROKEN = auto()
    """The connection or the answer broke; try again soon."""
    SLOW = auto()
    """No answer in time; asking again would cost as much."""


def blame(error: Exception) -> Blame:
    """Sort a failed request."""
    if isinstance(error, openai.APITimeoutError):
        return Blame.SLOW
    if not isinstance(error, openai.APIStatusError):
        return Blame.BROKEN
    if error.status_code in (400, 413, 422):
        return Blame.SAMPLE
    if error.status_code in (429, 503, 529):
        return Blame.BUSY
    return Blame.BROKEN if error.status_code >= 500 else Blame.SERVER


def describe(error: Exception) -> str:
    """Return one line for a person: the server's own words where there are any."""
    if isinstance(error, openai.APIStatusError):
        body = error.body if isinstance(error.body, dict) else {}
        return f"HTTP {error.status_code}: {body.get('message') or error.message}"
    cause = error.__cause__
    text = f"{type(error).__name__}: {error}"
    return f"{text} ({cause})" if cause is not None and str(cause) not in text else text


def is_overflow(message: str) -> bool:
    """Tell whether a refusal says that the prompt is too long."""
    return _OVERFLOW.search(message) is not None


class Gate:
    """Lets requests through until the server is found dead. Safe for threads; one per evaluation."""

    def __init__(self, *, is_alive: Callable[[], bool], limit: int) -> None:
        self._is_alive = is_alive
        self._limit = max(MIN_IN_A_ROW, limit)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._reason = ""
        self._in_a_row = 0
        self.doubtful = 0
        """Samples without an answer for which the server may be to blame."""

    @property
    def reason(self) -> str:
        """Why the gate is closed; "" while it is open."""
        return self._reason

    def ask(self, request: Callable[[], T]) -> T:
        """Make one request, again where that may help.

        Raises:
            EndpointFailed: the server is dead, or was found dead before.
            Exception: whatever the request raised; only this sample is to blame.
        """
        attempt = 0
        while True:
            self._check_open()
            try:
                answer = request()
            except Exception as error:
                pause_s = _pause_s(error, attempt)
                if pause_s is None:
                    self._give_up(error)
                    raise
                log.info("trying again in %.1f s: %s", pause_s, describe(error))
                self._closed.wait(pause_s)
                attempt += 1
            else:
                with self._lock:
                    self._in_a_row = 0
                return answer

    # --- private

    def _check_open(self) -> None:
        if self._reason:
            raise EndpointFailed(self._reason, hint="look at the server")

    def _give_up(self, error: Exception) -> None:
        """Return when only the sample is to blame, else close the gate and raise."""
        kind = blame(error)
        if kind is Blame.SAMPLE:
            return
        if kind in (Blame.SERVER, Blame.BUSY) or not self._is_alive():
            self._close(describe(error))
        with self._lock:
            self.doubtful += 1
            self._in_a_row += 1
            too_many = self._in_a_row >= self._limit
        if too_many:
            self._close(f"{self._limit} requests in a row failed, the last one with {describe(error)}")

    def _close(self, reason: str) -> None:
        with self._lock:
            self._reason = self._reason or reason
        self._closed.set()
        self._check_open()


# --- private


def _pause_s(error: Exception, attempt: int) -> float | None:
    """Return how long to wait before the next try, None when there is no next one."""
    kind = blame(error)
    pauses = {Blame.BUSY: LONG_PAUSES_S, Blame.BROKEN: SHORT_PAUSES_S}.get(kind, ())
    if attempt >= len(pauses):
        return None
    return max(pauses[attempt], _retry_after_s(error))


def _retry_after_s(error: Exception) -> float:
    if not isinstance(error, openai.APIStatusError):
        return 0.0
    try:
        return min(float(error.response.headers.get("retry-after", "")), MAX_RETRY_AFTER_S)
    except ValueError:
        return 0.0
