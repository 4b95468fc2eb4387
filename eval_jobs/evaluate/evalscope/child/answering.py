"""The gate that every request goes through: tried again where that helps, stopped where the server is gone.

    gate = Gate(is_alive=..., slots=Slots(8))
    output = gate.ask(lambda: client.create(...))

A refused sample (400) is one sample's failure. A server that is gone, overloaded for long or refuses the key or the
model stops all benchmarks at once: what was answered is kept, and a retry asks the rest. In between (500, a timeout,
a cut or unreadable answer) the server is asked whether it lives. After `limit` such failures in a row it must answer a
control, a question that it answered before: if it cannot, the evaluation stops; if it can, these samples are to blame.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

import openai

from eval_jobs.errors import EndpointFailed, EndpointRefused
from eval_jobs.evaluate.common.pauses import Pauses
from eval_jobs.evaluate.evalscope.child.blame import Blame, blame, describe, pause_s, retry_after_s
from eval_jobs.evaluate.evalscope.child.slots import Slots

log = logging.getLogger(__name__)

T = TypeVar("T")

MIN_IN_A_ROW = 3
CONTROL_FAILURES = (openai.OpenAIError, ValueError, TypeError, AttributeError, RuntimeError)
"""What the client raises: a body that is no completion breaks it at any place."""


class NoAnswer(Exception):
    """One sample got no proper answer although the server lives."""

    def __init__(self, detail: str, *, may_pass: bool) -> None:
        super().__init__(detail)
        self.may_pass = may_pass
        """Whether the server may be to blame: asking again later may help."""


class Gate:
    """Lets requests through until the server is found dead. Safe for threads; one for all benchmarks of a suite."""

    def __init__(
        self,
        *,
        is_alive: Callable[[], bool],
        slots: Slots,
        own_engine: bool = False,
        pauses: Pauses | None = None,
    ) -> None:
        """Open the gate.

        Args:
            is_alive: whether the server answers at all.
            slots: of requests in flight; so many failures in a row are suspicious. Closed with the gate.
            own_engine: it knows no keys, so what refuses one is somebody else at its address.
            pauses: before a request is made again.
        """
        self._is_alive = is_alive
        self._own_engine = own_engine
        self._slots = slots
        self._limit = max(MIN_IN_A_ROW, slots.limit)
        self._lock = threading.Lock()
        self._pauses = pauses or Pauses()
        self._closed = slots.closed
        self._error: EndpointFailed | EndpointRefused | None = None
        self._in_a_row = 0
        self._answered = 0
        self._answered_before: Callable[[], object] | None = None
        self.control: Callable[[], object] | None = None
        """Asks something that the server should answer, for as long as this gate has seen no answer itself."""

    @property
    def error(self) -> EndpointFailed | EndpointRefused | None:
        """Why the gate is closed; None while it is open."""
        return self._error

    def ask(self, request: Callable[[], T]) -> T:
        """Make one request, again where that may help.

        Raises:
            EndpointFailed, EndpointRefused: the server is of no use, now or before.
            NoAnswer: only this sample got no answer.
        """
        attempt, answered = 0, self._answered
        while True:
            self._wait_for_turn()
            try:
                answer = request()
                self._note_answer(request)
            except Exception as error:
                pause = pause_s(error, attempt, self._pauses)
                if pause is None and blame(error) is Blame.BUSY and self._answered > answered:
                    # Others are served: it is only that our turn has not come.
                    answered, pause = self._answered, max(self._pauses.busy_s[-1], retry_after_s(error))
                if pause is None:
                    raise self._give_up(error) from error
                log.info("trying again in %.1f s: %s", pause, describe(error))
                everybody = blame(error) is Blame.BUSY
            else:
                return answer
            finally:
                self._slots.give()
            self._pause(pause, everybody=everybody)
            attempt += 1

    # --- private

    def _note_answer(self, request: Callable[[], object]) -> None:
        with self._lock:
            self._in_a_row = 0
            self._answered += 1
            self._answered_before = self._answered_before or request

    def _wait_for_turn(self) -> None:
        """Wait while the server has asked for peace, and raise when the gate is closed."""
        self._slots.wait_for_peace()
        if self._error is not None:
            raise type(self._error)(self._error.message, hint=self._error.hint)

    def _pause(self, pause: float, *, everybody: bool) -> None:
        if everybody:
            with self._lock:
                self._slots.busy_until_s = max(self._slots.busy_until_s, self._closed.now_s() + pause)
        else:
            self._closed.wait(pause)

    def _give_up(self, error: Exception) -> Exception:
        """Return what the failure means, having closed the gate when the server is to blame."""
        kind = blame(error)
        if kind is Blame.SAMPLE:
            return NoAnswer(describe(error), may_pass=False)
        if kind is Blame.KEY and not self._own_engine:
            return self._close(
                EndpointRefused(describe(error), hint="check the key in the variable that serve.api_key_env names")
            )
        if kind in (Blame.KEY, Blame.SERVER, Blame.BUSY) or not self._is_alive():
            return self._close(EndpointFailed(describe(error), hint="look at the server"))
        with self._lock:
            self._in_a_row += 1
            too_many = self._in_a_row >= self._limit
        if too_many and not self._answers_control():
            reason = f"{self._limit} requests in a row failed, the last one with {describe(error)}"
            return self._close(EndpointFailed(reason, hint="look at the server"))
        return NoAnswer(describe(error), may_pass=True)

    def _answers_control(self) -> bool:
        """Ask what was answered before: a server that still can is not to blame for what it does not answer."""
        control = self._answered_before or self.control
        if control is None:
            return False
        try:
            control()
        except CONTROL_FAILURES as error:
            log.warning("a question that the server should answer gets no answer either: %s", describe(error))
            return False
        with self._lock:
            self._in_a_row = 0
        return True

    def _close(self, error: EndpointFailed | EndpointRefused) -> Exception:
        with self._lock:
            self._error = self._error or error
            reason = self._error
        self._closed.set()
        return type(reason)(reason.message, hint=reason.hint)
