"""Finds and pins the checkpoints of a training output folder: `tracker.ports.CheckpointSource` on a real file system.

    a thread:  hint or 1.5 seconds -> sweep: every folder checked, complete ones held immediately (hard links)
    ready():   sweep -> holds that have settled -> digest and NaN check -> published pins -> Checkpoint...

Holding must not wait for anything: a trainer that keeps two checkpoints deletes one while results are being published.
Hashing, which takes seconds for large weights, runs only in the caller's thread.
"""

import math
import os
import threading
import time
from datetime import datetime
from functools import partial
from pathlib import Path

from eval_jobs.ports import Clock
from eval_jobs.types import Checkpoint
from tracker.adapters.checkpoints.consolidate.consolidator import Consolidations, consolidator_of
from tracker.adapters.checkpoints.folder.hints import Hints
from tracker.adapters.checkpoints.folder.sweep import Folders, remove_pins
from tracker.adapters.checkpoints.pins.publisher import Publisher, SteadyClock
from tracker.adapters.checkpoints.pins.recovery import find_pins, release_holds
from tracker.domain.checkpoints.pin import Pin
from tracker.domain.checkpoints.watching import WatchOptions
from tracker.domain.records.types import Gap

QUICK_S = 1.5
"""Seconds between two quick scans without events: of folder entries, not of the files of finished checkpoints.

Slightly more than the second between two calls of `ready`, which scan too: the thread scans if those take long.
"""

ABSENT_S = 0.1
"""The same while the output folder does not exist, when a scan costs next to nothing."""

PAUSE_S = 0.02
"""Events come in bursts; one scan covers many."""

MAX_HEARD = 1 << 12
"""Files and folders whose events are remembered."""

HASHED_BYTES = 4 << 30
"""One call of `ready` hashes about this much, so that the evaluation of a backlog starts with its first checkpoint."""

PUBLISHED_S = 1.0
"""The same for many small checkpoints."""
LONGEST_WAIT_S = 10.0
"""Maximum time that `wait` leaves to holding."""
TOGETHER = 100
"""Due pins that are taken from the watchlist at once."""


class FilesystemSource:
    """`tracker.ports.CheckpointSource` for one output folder, which may not exist yet."""

    def __init__(self, run_name: str, output_dir: Path, pins_dir: Path, options: WatchOptions, clock: Clock) -> None:
        """Set what to watch; nothing is read or written before the first call of `ready`."""
        self._run_name = run_name
        self._output_dir = output_dir.absolute()
        self._pins_dir = pins_dir.absolute()
        self._options = options
        self._clock = SteadyClock(clock)
        self._folders = Folders(run_name, self._output_dir, self._pins_dir, options)
        self._lock = threading.RLock()
        self._publisher = Publisher(self._folders.watchlist, self._lock)
        self._hint, self._wake, self._stopped = threading.Event(), threading.Event(), threading.Event()
        self._consolidations = Consolidations(consolidator_of(options, pins_dir), self._wake.set)
        self._due: list[Pin] = []
        """Handed out by the watchlist, and not published yet."""
        self._thread: threading.Thread | None = None
        self._swept_at: datetime | None = None
        self._looked_s = -math.inf
        """Monotonic time of the last scan of any kind."""
        self._began_s = -math.inf
        """Monotonic time of the last call of `ready`."""
        self._waits_until_s = -math.inf
        """Monotonic time at which `wait` times out; in the past while no call is waiting."""
        self._heard: dict[str, datetime] = {}
        """Path -> time of the last file event there."""

    def ready(self, now: datetime) -> tuple[Checkpoint, ...]:
        """Return every checkpoint that is complete and pinned, lowest step first, new content only."""
        if self._thread is None:
            self._start(now)
        self._began_s = time.monotonic()
        steady = self._clock.now()
        if not self._folders.is_unfinished:  # else the thread continues it
            self._sweep(steady)
        self._publish_settled(steady)
        return self._publisher.take()

    def gaps(self) -> tuple[Gap, ...]:
        """Return every checkpoint that cannot be evaluated, found so far by this process, with the reason."""
        with self._lock:
            return self._folders.watchlist.gaps.found()

    def is_behind(self) -> bool:
        """Return whether the file server is unavailable, or checkpoints are being held, published or converted."""
        with self._lock:
            is_working = self._folders.is_unfinished or bool(self._due) or self._consolidations.is_busy()
            return self._folders.outage.is_on or is_working

    def give_up(self, now: datetime) -> None:  # noqa: ARG002 - part of the port
        """Record a gap for every unfinished checkpoint, except during an outage."""
        with self._lock:
            if not self._folders.outage.is_on:
                self._folders.watchlist.give_up(self._clock.now())

    def wait(self, timeout_s: float) -> None:
        """Return after `timeout_s`, or earlier when something may have changed on disk or a hold has settled."""
        if self._folders.is_unfinished:
            self._stopped.wait(min(2 * (time.monotonic() - self._began_s), LONGEST_WAIT_S))  # holding comes first
            return
        settles_in_s = self._settles_in_s()
        if settles_in_s is not None:
            timeout_s = min(timeout_s, max(settles_in_s, PAUSE_S))
        self._waits_until_s = time.monotonic() + timeout_s
        self._wake.wait(timeout_s)
        self._wake.clear()
        self._waits_until_s = -math.inf

    def wake(self) -> None:
        """Make `wait` return immediately; see the port."""
        self._wake.set()

    def close(self) -> None:
        """Stop watching. Calling it twice is harmless."""
        self._stopped.set()
        self._hint.set()
        self._wake.set()
        self._consolidations.close()
        if self._thread is not None:
            self._thread.join()
            release_holds(self._pins_dir, self._run_name, self._output_dir)

    def _start(self, now: datetime) -> None:
        pins = find_pins(self._pins_dir, self._run_name, self._output_dir, now)
        with self._lock:
            remove_pins(self._folders.watchlist.restore(pins, self._clock.now()))
        self._publisher.restore(pins)
        thread = threading.Thread(target=self._watch, name="checkpoint-watch", daemon=True)
        thread.start()
        self._thread = thread  # set last: a thread that was interrupted during its start cannot be joined

    def _watch(self) -> None:
        hints = None if self._options.polling else Hints(self._output_dir, self._hear)
        while not self._stopped.is_set():
            is_notified = self._is_notified(hints)
            self._hint.clear()
            # Without a hint one scan per QUICK_S is enough, by a call of `ready` or by this thread.
            if (is_notified or self._pause_s() <= PAUSE_S) and (self._sweep(self._clock.now()) or self._oversleeps()):
                self._wake.set()
            self._stopped.wait(PAUSE_S)
        if hints is not None:
            hints.close()

    def _is_notified(self, hints: Hints | None) -> bool:
        # Files written before watching began gave no event: scan immediately.
        is_new = self._folders.is_unfinished or (hints is not None and hints.follow())
        return is_new or self._hint.wait(self._pause_s())

    def _hear(self, path: str) -> None:
        if len(self._heard) > MAX_HEARD:
            self._heard.clear()  # a checkpoint that is held at this moment waits for the long settle time
        self._heard[path] = self._heard[os.path.dirname(path)] = self._clock.now()  # noqa: PTH120 - text to text
        self._hint.set()

    def _settles_in_s(self) -> float | None:
        with self._lock:
            return self._folders.watchlist.settles_in_s(self._clock.now(), self._heard)

    def _oversleeps(self) -> bool:
        """Return whether a hold settles before `wait` times out, because an event came after the wait had begun."""
        left_s = self._waits_until_s - time.monotonic()
        if left_s <= PAUSE_S:
            return False
        settles_in_s = self._settles_in_s()
        return settles_in_s is not None and settles_in_s + PAUSE_S < left_s

    def _pause_s(self) -> float:
        # The first checkpoints of a starting trainer must not wait for the first events.
        is_there = os.path.exists(self._output_dir)  # noqa: PTH110 - Path.exists raises what a stale mount says
        longest_s = min(QUICK_S if is_there else ABSENT_S, self._options.rescan_s)
        return max(0.0, longest_s - (time.monotonic() - self._looked_s))  # real seconds, like the wait itself

    def _sweep(self, now: datetime) -> bool:
        with self._lock:
            is_full = self._swept_at is None or (now - self._swept_at).total_seconds() >= self._options.rescan_s
            self._looked_s = time.monotonic()
            sweep = partial(self._folders.sweep, now, is_full=is_full)
            is_new = self._folders.aside.attempt("sweep", f"cannot scan {self._output_dir}", sweep, otherwise=False)
            if is_full and not self._folders.is_unfinished:
                self._swept_at = now
            return is_new

    def _publish_settled(self, now: datetime) -> None:
        for held, conversion in self._consolidations.ended():
            self._publisher.publish(held, now, final=conversion.result)
        hashed, until_s = 0, time.monotonic() + PUBLISHED_S
        while hashed < HASHED_BYTES and (not hashed or time.monotonic() < until_s):
            pin = self._next_pin(now)
            if pin is None:
                return
            if pin.needs_conversion:
                self._consolidations.start(pin)
                continue
            hashed += sum(f.size for f in pin.weights())
            self._publisher.publish(pin, now)

    def _next_pin(self, now: datetime) -> Pin | None:
        self._due = self._due or self._next_due(now)
        if self._due:
            return self._due.pop(0)
        return None

    def _next_due(self, now: datetime) -> list[Pin]:
        """Return the next pins that are due and can be served: several, because a sweep may hold the lock for long."""
        found: list[Pin] = []
        with self._lock:
            while len(found) < TOGETHER and (due := self._folders.watchlist.next_due(now, self._heard)) is not None:
                pin: Pin | None = due
                if due.complete.blocked is not None:
                    unblocked = partial(self._folders.unblocked, due, now)
                    pin = self._folders.aside.attempt(due.folder, f"cannot examine {due.source}", unblocked, None)
                if pin is not None:
                    found.append(pin)
        return found
