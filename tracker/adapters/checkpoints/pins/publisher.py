"""Shared by all sources: publishes holds, and returns each content once."""

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from eval_jobs.errors import CheckpointError, ConsolidationFailed, StoreError
from eval_jobs.host.unforeseen import bug_of, error_text
from eval_jobs.ports import Clock
from eval_jobs.types import Checkpoint
from tracker.adapters.checkpoints.pins.hold import publish, remove_folder
from tracker.domain.checkpoints.pin import Pin
from tracker.domain.checkpoints.watchlist import Watchlist

log = logging.getLogger(__name__)


class SteadyClock:
    """The current time without the clock jumps since the start.

    After a jump forwards, files written a moment ago must not count as settled; after a jump backwards, no file must
    wait for hours.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_at, self._began_s = clock.now(), clock.monotonic_s()

    def now(self) -> datetime:
        """Return the time."""
        return self._began_at + timedelta(seconds=self._clock.monotonic_s() - self._began_s)


class Complaints:
    """Logs a problem that lasts over many scans once."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def say(self, message: str) -> None:
        """Log the message, unless it was logged before."""
        if message not in self._said:
            log.warning("%s", message)
            self._said.add(message)


class Publisher:
    """Publishes holds, and keeps the checkpoints until `take` returns them. Safe to use from several threads."""

    def __init__(self, watchlist: Watchlist, lock: threading.RLock) -> None:
        """Publish the holds of `watchlist`, which `lock` guards."""
        self._watchlist = watchlist
        self._watchlist_lock = lock
        self._lock = threading.Lock()
        self._complaints = Complaints()
        self._fresh: list[Checkpoint] = []
        self._returned: set[tuple[str, int, str, str]] = set()

    def restore(self, pins: Sequence[Pin]) -> None:
        """Load the pins published before; of those with the same weights and other small files, only the newest."""
        newest: dict[tuple[str, int, str], Checkpoint] = {}
        for pin in sorted(pins, key=lambda p: p.ready_ns):
            checkpoint = pin.checkpoint
            if checkpoint is not None and not pin.released:
                newest[checkpoint.run_id, checkpoint.step, checkpoint.digest] = checkpoint
        self._fresh = list(newest.values())

    def publish(self, pin: Pin, now: datetime, *, final: Callable[[], Pin] | None = None) -> None:
        """Publish a due hold; an unusable checkpoint becomes a gap, and a storage error postpones it.

        `final` returns the hold to publish instead, or raises as publishing does.
        """
        try:
            checkpoint = publish(pin if final is None else final())
        except CheckpointError as error:
            with self._watchlist_lock:
                self._watchlist.gaps.add(pin, error, now)
            if not isinstance(error, ConsolidationFailed):
                remove_folder(Path(pin.folder))
        except StoreError as error:
            self._complaints.say(str(error))
            with self._watchlist_lock:
                self._watchlist.postponed(pin)
        except Exception as error:
            log.exception("cannot publish %s; please report this bug", pin.source)
            with self._watchlist_lock:
                self._watchlist.gaps.add(pin, bug_of(error_text(error)), now)
        else:
            if self._watchlist.gaps.has(pin.uri):  # asked without the lock, which a sweep may hold for long
                with self._watchlist_lock:
                    self._watchlist.gaps.forget(pin.uri)  # its source has no fault any more
            with self._lock:
                self._fresh.append(checkpoint)

    def take(self) -> tuple[Checkpoint, ...]:
        """Return the new checkpoints, lowest step first, each content once."""
        with self._lock:
            fresh, self._fresh = sorted(self._fresh, key=lambda c: (c.step, c.run_id, c.ready_at)), []
            return tuple(checkpoint for checkpoint in fresh if self._is_first(checkpoint))

    def _is_first(self, checkpoint: Checkpoint) -> bool:
        key = (checkpoint.run_id, checkpoint.step, checkpoint.digest, checkpoint.files_digest)
        is_first = key not in self._returned
        self._returned.add(key)
        return is_first
