"""Limit of requests in flight: one budget for all benchmarks of an evaluation.

A slot is taken immediately before a request is sent and released when the response has arrived. After a failure it is
released only when the failure has been handled, so that a control request does not wait behind others.
"""

import threading
import time


class StopFlag(threading.Event):
    """Set when no more requests are to be sent; every pause is a wait for it."""

    def now_s(self) -> float:
        """Return the seconds of a monotonic clock; only the difference of two values is meaningful."""
        return time.monotonic()


class ConcurrencyLimiter:
    """Slots for at most `limit` requests in flight, at most one per thread. Thread-safe."""

    def __init__(self, limit: int, *, stopped: StopFlag | None = None) -> None:
        self.limit = limit
        self.stopped = stopped or StopFlag()
        """Once set, no slots are given out."""
        self.busy_until_s = 0.0
        """No requests are sent until this time, on the clock of `stopped`."""
        self._free = threading.Semaphore(limit)
        self._own = _Own()

    def acquire(self) -> bool:
        """Wait for a slot, unless this thread has one; return False if stopped."""
        if self._own.since_s is None:
            self._free.acquire()
            self.wait_for_peace()
            self._own.since_s = time.monotonic()
        if self.stopped.is_set():
            self.release()
            return False
        return True

    def wait_for_peace(self) -> None:
        """Wait until `busy_until_s`, or until stopped."""
        while not self.stopped.is_set() and (left_s := self.busy_until_s - self.stopped.now_s()) > 0:
            self.stopped.wait(left_s)

    def release(self) -> None:
        """Release this thread's slot; no-op without one."""
        if self._own.since_s is not None:
            self._own.taken_s += time.monotonic() - self._own.since_s
            self._own.since_s = None
            self._free.release()

    def spent_s(self) -> float:
        """Return the seconds for which this thread held slots, since its last call of this method."""
        spent_s, self._own.taken_s = self._own.taken_s, 0.0
        return spent_s


class _Own(threading.local):
    since_s: float | None = None
    taken_s: float = 0.0
