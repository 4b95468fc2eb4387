"""Circuit breaker for every request: it retries if that may help, and stops if the server fails.

A rejected sample (400) fails alone. A server that is unreachable, overloaded for long, or rejects the key or the model
stops all benchmarks: stored answers are kept, and a retry requests the rest. After any other failure (500, a timeout,
an interrupted or unreadable response) the server is probed. After `limit` of them in a row it must answer a control
request that it answered before. If it does not, the evaluation stops; if it does, the samples are at fault.
"""

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from eval_jobs.errors import EndpointFailed, EndpointRefused
from eval_jobs.evaluate.asking.failures import FailureKind, classify_failure, describe, pause_s, retry_after_of
from eval_jobs.evaluate.asking.limiter import ConcurrencyLimiter
from eval_jobs.evaluate.common.protocol import RetryPolicy

log = logging.getLogger(__name__)

T = TypeVar("T")

MIN_IN_A_ROW = 3
_READ_LOG = "check that the server is running, and read its log"


class NoAnswer(Exception):
    """One sample has no valid answer, although the server responds."""

    def __init__(self, detail: str, *, may_pass: bool) -> None:
        super().__init__(detail)
        self.may_pass = may_pass
        """Whether the server may be at fault, so that a later retry may help."""


class CircuitBreaker:
    """Lets requests through until the server fails. Thread-safe; all benchmarks of one evaluation share it."""

    def __init__(
        self,
        *,
        is_alive: Callable[[], bool],
        limiter: ConcurrencyLimiter,
        retry_policy: RetryPolicy,
        own_engine: bool = False,
    ) -> None:
        """Create a breaker that lets requests through.

        Args:
            is_alive: returns whether the server responds at all.
            limiter: limits requests in flight; after as many failures in a row a control is sent. The breaker stops it.
            retry_policy: pauses before a request is sent again.
            own_engine: it has no key, so a rejected key means that another server has its address.
        """
        self._is_alive = is_alive
        self._own_engine = own_engine
        self._limiter = limiter
        self._limit = max(MIN_IN_A_ROW, limiter.limit)
        self._lock = threading.Lock()
        self._retry_policy = retry_policy
        self._stopped = limiter.stopped
        self.error: EndpointFailed | EndpointRefused | None = None
        """Why no more requests are sent; None while they are."""
        self._in_a_row = 0
        self._answered = 0
        self._answered_before: Callable[[], object] | None = None
        self.control: Callable[[], object] | None = None
        """Sends a control request; used until the breaker has seen a request succeed, which it then repeats instead."""

    def ask(self, request: Callable[[], T]) -> T:
        """Send one request, and retry it if that may help.

        Raises:
            EndpointFailed, EndpointRefused: the server failed, on this request or an earlier one.
            NoAnswer: only this sample has no answer.
        """
        attempt, answered = 0, self._answered
        while True:
            self._wait_for_turn()
            try:
                answer = request()
                self._note_answer(request)
            except Exception as error:
                pause = pause_s(error, attempt, self._retry_policy)
                if pause is None and classify_failure(error) is FailureKind.BUSY and self._answered > answered:
                    # The server answers other requests, so it is busy but works: keep waiting.
                    answered, pause = self._answered, max(self._retry_policy.busy_s[-1], retry_after_of(error))
                if pause is None:
                    raise self._give_up(error) from error
                log.info("request failed, retrying in %.1f s: %s", pause, describe(error))
                everybody = classify_failure(error) is FailureKind.BUSY
            else:
                return answer
            finally:
                self._limiter.release()
            self._pause(pause, everybody=everybody)
            attempt += 1

    def _note_answer(self, request: Callable[[], object]) -> None:
        with self._lock:
            self._in_a_row = 0
            self._answered += 1
            self._answered_before = self._answered_before or request

    def _wait_for_turn(self) -> None:
        """Wait while the server is busy; raise if no more requests are to be sent."""
        self._limiter.wait_for_peace()
        if self.error is not None:
            raise type(self.error)(self.error.message, hint=self.error.hint)

    def _pause(self, pause: float, *, everybody: bool) -> None:
        if everybody:
            with self._lock:
                self._limiter.busy_until_s = max(self._limiter.busy_until_s, self._stopped.now_s() + pause)
        else:
            self._stopped.wait(pause)

    def _give_up(self, error: Exception) -> Exception:
        """Return the error for a failed request, and stop all requests if the server is at fault."""
        kind = classify_failure(error)
        if kind is FailureKind.SAMPLE:
            return NoAnswer(describe(error), may_pass=False)
        if kind is FailureKind.KEY and not self._own_engine:
            return self._trip(
                EndpointRefused(describe(error), hint="check the API key in the variable named by serve.api_key_env")
            )
        if kind in (FailureKind.KEY, FailureKind.SERVER, FailureKind.BUSY) or not self._is_alive():
            return self._trip(EndpointFailed(describe(error), hint=_READ_LOG))
        with self._lock:
            self._in_a_row += 1
            too_many = self._in_a_row >= self._limit
        if too_many and not self._answers_control():
            reason = f"{self._limit} consecutive requests failed, the last with {describe(error)}"
            return self._trip(EndpointFailed(reason, hint=_READ_LOG))
        return NoAnswer(describe(error), may_pass=True)

    def _answers_control(self) -> bool:
        """Return whether a control request succeeds: then the failing samples are at fault, not the server."""
        control = self._answered_before or self.control
        if control is None:
            return False
        try:
            control()
        except Exception as error:  # noqa: BLE001 - a body that is no completion breaks a client at any place
            log.warning("the server also failed a test request: %s", describe(error))
            return False
        with self._lock:
            self._in_a_row = 0
        return True

    def _trip(self, error: EndpointFailed | EndpointRefused) -> Exception:
        with self._lock:
            self.error = self.error or error
            reason = self.error
        self._stopped.set()
        return type(reason)(reason.message, hint=reason.hint)
