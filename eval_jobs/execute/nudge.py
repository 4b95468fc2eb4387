"""Wake-up signals: a byte in a pipe. Both sides also poll, so a lost or an additional signal is harmless.

nudge(descriptor)                      # when there is something new for the other side
wait_for_nudge(descriptor, 2.0)        # on the other side
"""

import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

NUDGED_IDLE_S = 2.0
"""Polling interval of an empty queue for a worker that is nudged when a plan is added."""
DRAINED_BYTES = 1 << 16
"""Capacity of a pipe: pending nudges are read together and cause one poll."""


def nudge(descriptor: int) -> None:
    """Signal that there is something new. Never blocks: a full pipe has signals already, a closed one no reader."""
    with suppress(BlockingIOError, BrokenPipeError):
        os.write(descriptor, b"\n")


def wait_for_nudge(descriptor: int, timeout_s: float | None = None) -> bool:
    """Return at the first nudge or after `timeout_s`. True: the other end is closed, so no more nudges will come."""
    if not select.select([descriptor], [], [], timeout_s)[0]:
        return False
    return not os.read(descriptor, DRAINED_BYTES)


def pass_on(descriptor: int, to: Callable[[], None]) -> None:
    """Call `to` at every nudge until the other end is closed. Requires a thread of its own."""
    while not wait_for_nudge(descriptor):
        to()


class Nudged:
    """A worker's ends of the pipes to the process that started it: its stdin and its stdout.

    From then on, stdin is empty, and stdout is redirected to stderr, also for child processes.
    """

    def __init__(self) -> None:
        self._in, self._out = os.dup(0), os.dup(1)
        with Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)
        os.set_blocking(self._out, False)
        self._is_alone = False

    def nap(self, seconds: float) -> None:
        """Return after `seconds` or at a nudge; while the pipe is open, the wait is at least `NUDGED_IDLE_S`."""
        if self._is_alone:
            threading.Event().wait(seconds)
        else:
            self._is_alone = wait_for_nudge(self._in, max(seconds, NUDGED_IDLE_S))

    def report(self) -> None:
        """Nudge the process that started the worker."""
        nudge(self._out)
