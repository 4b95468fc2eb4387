"""A byte in a pipe that says: look now. Both sides also look by themselves, so a lost one or one too many does no harm.

nudge(descriptor)                      # whoever has something new for the other side
wait_for_nudge(descriptor, 2.0)        # whoever waits for it
"""

import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

NUDGED_IDLE_S = 2.0
"""Longest time between two looks at an empty queue of a worker that is nudged when there is something in it."""
DRAINED_BYTES = 1 << 16
"""All that a pipe holds: many nudges call for one look."""


def nudge(descriptor: int) -> None:
    """Say that there is something new. Never waits: a full pipe says so already, and nobody reads a closed one."""
    with suppress(BlockingIOError, BrokenPipeError):
        os.write(descriptor, b"\n")


def wait_for_nudge(descriptor: int, timeout_s: float | None = None) -> bool:
    """Return at the first nudge, or after `timeout_s`; True: nobody is there any more who could give one."""
    if not select.select([descriptor], [], [], timeout_s)[0]:
        return False
    return not os.read(descriptor, DRAINED_BYTES)


def pass_on(descriptor: int, to: Callable[[], None]) -> None:
    """Call `to` at every nudge until nobody is there any more who could give one. For a thread of its own."""
    while not wait_for_nudge(descriptor):
        to()


class Nudged:
    """A worker's ends of the pipes to the process that started it: its stdin and its stdout.

    From here on nothing can be read from stdin, and what is printed goes to stderr, also that of child processes.
    """

    def __init__(self) -> None:
        self._in, self._out = os.dup(0), os.dup(1)
        with Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)
        os.set_blocking(self._out, False)
        self._is_alone = False

    def nap(self, seconds: float) -> None:
        """Return after `seconds`, or at a nudge; who is nudged looks by himself less often."""
        if self._is_alone:
            threading.Event().wait(seconds)
        else:
            self._is_alone = wait_for_nudge(self._in, max(seconds, NUDGED_IDLE_S))

    def report(self) -> None:
        """Nudge the process that started the worker."""
        nudge(self._out)
