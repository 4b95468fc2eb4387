"""Extends the lease of a claim while its plan is carried out, and reports the progress."""

import logging
import threading
from collections.abc import Callable
from typing import Self

from eval_jobs.errors import StoreError
from eval_jobs.queue.rules import BEAT_S
from eval_jobs.records.progress import Progress

log = logging.getLogger(__name__)

BEATS_PER_LEASE = 4
"""Minimum: one beat may be late."""

Extend = Callable[[Progress | None, int], bool]
"""extend(progress, answered samples) -> whether the claim is still this worker's."""


class Heartbeat:
    """A thread that regularly extends the lease, with `extend`, while its context is open.

    `on_lost` is called at most once, from that thread, when the claim is no longer this worker's.
    """

    def __init__(self, extend: Extend, *, on_lost: Callable[[], None], lease_s: float) -> None:
        self._extend = extend
        self._on_lost = on_lost
        self._every_s = min(BEAT_S, lease_s / BEATS_PER_LEASE)
        self._progress: Progress | None = None
        self._answered: dict[tuple[int, tuple[str, ...]], int] = {}
        """Answered samples by pass and by the benchmarks that are counted together."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def show(self, progress: Progress) -> None:
        """Report `progress` from the next beat on."""
        if progress.answered is not None:
            counted = (progress.pass_number, progress.benchmarks)
            self._answered[counted] = max(progress.answered, self._answered.get(counted, 0))
        self._progress = progress

    def _beat(self) -> None:
        while not self._ended.wait(self._every_s):
            # A copy: the other thread may add a benchmark at this moment.
            answered = sum(self._answered.copy().values())
            try:
                is_ours = self._extend(self._progress, answered)
            except StoreError as error:
                # The lease outlasts a short outage of the database; if it does not, the next beat detects it.
                log.warning("cannot extend the lease: %s", error)
                continue
            if not is_ours:
                self._on_lost()
                return
