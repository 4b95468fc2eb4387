"""Turns signals into exceptions, and only where an exception can do no harm.

    interrupts = Interrupts()
    interrupts.install()
    with interrupts.allowed(claim):
        ...  # SIGTERM raises Stopped here, at whatever line; a lost lease raises LeaseLost

Everywhere else, such as in the middle of a database transaction or while an engine is stopped, a signal is noted and
raises as soon as the next `allowed` begins.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from eval_jobs.queue_types import Claim

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
WAKE_SIGNAL = signal.SIGUSR1
"""Sent to ourselves: only a signal gets the main thread out of a system call."""


class Stopped(BaseException):
    """Somebody asked the worker to end. Not an Exception: nothing on the way may take it for a failure."""


class LeaseLost(BaseException):
    """The plan belongs to another worker by now."""


class Interrupts:
    """One per process. `install`, `allowed` and `stop` belong to the main thread, the others to any."""

    def __init__(self) -> None:
        self._allowed = False
        self._stopping = False
        self._claim: Claim | None = None
        self._lost: Claim | None = None

    def install(self) -> None:
        """Take over the signals."""
        for number in STOP_SIGNALS:
            if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` makes it
                signal.signal(number, lambda *_: self.stop())
        signal.signal(WAKE_SIGNAL, lambda *_: self._raise_what_is_due())

    def stop(self) -> None:
        """Ask the worker to end."""
        self._stopping = True
        self._raise_what_is_due()

    def stop_from_thread(self) -> None:
        """Ask the worker to end, from another thread."""
        self._stopping = True
        self._wake()

    def lose(self, claim: Claim) -> None:
        """Say, from another thread, that `claim` is lost; it concerns nobody who works on another one."""
        self._lost = claim
        self._wake()

    @contextmanager
    def allowed(self, claim: Claim | None = None) -> Iterator[None]:
        """Let signals interrupt what is done in this context.

        Raises:
            Stopped: the worker is to end.
            LeaseLost: `claim` was lost.
        """
        self._claim = claim
        self._allowed = True
        try:
            self._raise_what_is_due()  # a signal that came before
            yield
        finally:
            self._allowed = False

    # --- private

    def _wake(self) -> None:
        main = threading.main_thread().ident
        if main is not None:
            signal.pthread_kill(main, WAKE_SIGNAL)

    def _raise_what_is_due(self) -> None:
        if not self._allowed:
            return
        if self._stopping:
            self._allowed = False  # once: the cleaning up that follows must not be interrupted again
            raise Stopped
        if self._claim is not None and self._lost is self._claim:
            self._allowed = False
            raise LeaseLost
