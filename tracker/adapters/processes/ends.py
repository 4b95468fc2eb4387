"""When processes end, noticed at once by a thread: of several that end together, the first one is the cause."""

import os
import select
import threading
import time
from collections.abc import Collection, Iterable
from contextlib import suppress

import psutil

from tracker.adapters.processes.identity import created_s
from tracker.domain.health.processes.seen import ProcessId

MOST = 1024
"""Processes that are waited for: each needs a descriptor."""


class ExitWatch:
    """Waits for processes that are no children. On systems without pidfd_open, nothing is noticed."""

    def __init__(self) -> None:
        self._poll = select.epoll() if hasattr(select, "epoll") else None
        self._waited: dict[ProcessId, int] = {}
        """Descriptor of each process; -1: it has ended, or cannot be waited for."""
        self._ended_s: dict[ProcessId, float] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def of(self, ids: Iterable[ProcessId]) -> dict[ProcessId, float]:
        """Return when these have ended, in Unix seconds; each that still lives is waited for from now on.

        Those that were asked for before, and are not now, are forgotten.
        """
        wanted = dict.fromkeys(ids)
        with self._lock:
            self._forget_all_but(wanted)
            for one in wanted:
                if one not in self._waited and len(self._waited) < MOST:
                    self._waited[one] = self._opened(one)
            if self._thread is None and self._poll is not None:
                with suppress(RuntimeError):  # no more threads: the next call tries again
                    thread = threading.Thread(target=self._wait, name="ends of processes", daemon=True)
                    thread.start()
                    self._thread = thread
            return {one: self._ended_s[one] for one in wanted if one in self._ended_s}

    def is_waiting(self, one: ProcessId) -> bool:
        """Return whether a process is waited for, and lives."""
        return self._waited.get(one, -1) >= 0

    def _forget_all_but(self, wanted: Collection[ProcessId]) -> None:
        for one in self._waited.keys() - wanted:
            descriptor = self._waited.pop(one)
            self._ended_s.pop(one, None)
            if descriptor >= 0:
                self._close(descriptor)

    def _close(self, descriptor: int) -> None:
        with suppress(OSError):
            if self._poll is not None:
                self._poll.unregister(descriptor)
        os.close(descriptor)

    def _opened(self, one: ProcessId) -> int:
        if self._poll is None or not hasattr(os, "pidfd_open"):
            return -1
        descriptor = -1
        with suppress(OSError, OverflowError, psutil.Error):
            descriptor = os.pidfd_open(one.pid)
            if created_s(one.pid) == one.created_s:
                self._poll.register(descriptor, select.EPOLLIN)
                return descriptor
        if descriptor >= 0:
            os.close(descriptor)
        return -1

    def _wait(self) -> None:
        while self._poll is not None:
            self._poll.poll()
            now_s = time.time()
            with self._lock:
                ready = [descriptor for descriptor, _ in self._poll.poll(0)]  # the numbers may be others meanwhile
                for one, descriptor in self._waited.items():
                    if descriptor in ready:
                        self._ended_s[one] = now_s
                        self._waited[one] = -1
                for descriptor in ready:
                    self._close(descriptor)
