"""How many requests may be in flight: one budget for all benchmarks of a suite.

The slot is taken right before a request is sent. It is given back when the answer is there; after a failure only when
that has been dealt with, so that a question that shows whether the server lives need not wait behind others.
"""

import threading
import time


class StopFlag(threading.Event):
    """Set when nothing is to be asked any more; every pause is a wait for it."""

    def now_s(self) -> float:
        """Return seconds that nobody can set; only the difference of two values means something."""
        return time.monotonic()


class ConcurrencyLimiter:
    """At most `limit` of them are taken at a time, none twice by one thread. Safe for threads."""

    def __init__(self, limit: int, *, stopped: StopFlag | None = None) -> None:
        self.limit = limit
        self.stopped = stopped or StopFlag()
        """Once set, nobody gets a slot any more."""
        self.busy_until_s = 0.0
        """On the clock of `stopped`: until then the server is left in peace."""
        self._free = threading.Semaphore(limit)
        self._own = _Own()

    def acquire(self) -> bool:
        """Wait for a slot, unless this thread has one; return False when there will be none."""
        if self._own.since_s is None:
            self._free.acquire()
            self.wait_for_peace()
            self._own.since_s = time.monotonic()
        if self.stopped.is_set():
            self.release()
            return False
        return True

    def wait_for_peace(self) -> None:
        """Wait while the server has asked for peace."""
        while not self.stopped.is_set() and (left_s := self.busy_until_s - self.stopped.now_s()) > 0:
            self.stopped.wait(left_s)

    def release(self) -> None:
        """Give back this thread's slot; without one: no-op."""
        if self._own.since_s is not None:
            self._own.taken_s += time.monotonic() - self._own.since_s
            self._own.since_s = None
            self._free.release()

    def spent_s(self) -> float:
        """Return for how long this thread has had slots since it asked this last."""
        spent_s, self._own.taken_s = self._own.taken_s, 0.0
        return spent_s


# --- private


class _Own(threading.local):
    since_s: float | None = None
    taken_s: float = 0.0
