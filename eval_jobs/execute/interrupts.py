"""Turns signals into exceptions, but only where an exception is harmless.

    interrupts = Interrupts()
    interrupts.install()
    with interrupts.allowed(claim):
        ...  # SIGTERM raises Stopped here, at any line; a lost lease raises LeaseLost

Everywhere else, such as in a database transaction or while an engine is stopped, a signal is recorded and raises when
the next `allowed` begins.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from eval_jobs.queue_types import Claim

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
WAKE_SIGNAL = signal.SIGUSR1
"""Sent to the own process: only a signal interrupts a system call of the main thread."""


class Stopped(BaseException):
    """The worker was requested to stop. Not an Exception: no handler in between may treat it as a failure."""


class LeaseLost(BaseException):
    """The plan now belongs to another worker."""


class Interrupts:
    """One per process. `install`, `allowed` and `stop` are for the main thread, the other methods for any thread."""

    def __init__(self) -> None:
        self._allowed = False
        self._stopping = False
        self._claim: Claim | None = None
        self._lost: Claim | None = None

    def install(self) -> None:
        """Install the signal handlers."""
        for number in STOP_SIGNALS:
            if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # as set by `nohup`
                signal.signal(number, lambda *_: self.stop())
        signal.signal(WAKE_SIGNAL, lambda *_: self._raise_what_is_due())

    def stop(self) -> None:
        """Request the worker to stop."""
        self._stopping = True
        self._raise_what_is_due()

    def stop_from_thread(self) -> None:
        """Request the worker to stop, from another thread."""
        self._stopping = True
        self._wake()

    def lose(self, claim: Claim) -> None:
        """Report from another thread that `claim` is lost; without effect while another claim is carried out."""
        self._lost = claim
        self._wake()

    @contextmanager
    def allowed(self, claim: Claim | None = None) -> Iterator[None]:
        """Let signals interrupt the code in this context.

        Raises:
            Stopped: the worker was requested to stop.
            LeaseLost: `claim` was lost.
        """
        self._claim = claim
        self._allowed = True
        try:
            self._raise_what_is_due()  # an earlier signal
            yield
        finally:
            self._allowed = False

    def _wake(self) -> None:
        main = threading.main_thread().ident
        if main is not None:
            signal.pthread_kill(main, WAKE_SIGNAL)

    def _raise_what_is_due(self) -> None:
        if not self._allowed:
            return
        if self._stopping:
            self._allowed = False  # once: the cleanup that follows must not be interrupted
            raise Stopped
        if self._claim is not None and self._lost is self._claim:
            self._allowed = False
            raise LeaseLost
