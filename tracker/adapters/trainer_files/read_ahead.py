"""Logs that are read in a thread: a file server that hangs blocks the thread, not the caller."""

import logging
from collections.abc import Collection, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass

from eval_jobs.host.bounded.answers import in_thread
from eval_jobs.ports import Clock
from tracker.adapters.trainer_files.log_folder import LogFolder
from tracker.domain.health.logs.cursor import Cursor, LogPiece

log = logging.getLogger(__name__)

PATIENCE_S = 2.0
REPORT_S = 60.0


@dataclass(kw_only=True)
class ReadAhead:
    """`ports.TrainingLog` around the logs of a folder. Only one call of the folder runs at a time."""

    folder: LogFolder
    clock: Clock
    patience_s: float = PATIENCE_S
    _reading: Future[tuple[list[LogPiece], str]] | None = None
    _since_s: float = 0.0
    _is_reported: bool = False
    _recent: frozenset[str] = frozenset()

    def read(self) -> Iterator[LogPiece]:
        """Yield what is new; nothing while an earlier reading hangs, whose lines come later."""
        now_s = self.clock.monotonic_s()
        if self._reading is None:
            try:
                self._reading, self._since_s = in_thread("training logs", self._read), now_s
            except RuntimeError as error:  # the system has no more threads
                self._report(str(error))
                return
        if not wait([self._reading], self.patience_s).done:
            if now_s - self._since_s >= REPORT_S:
                self._report("their file system does not respond")
            return
        reading, self._reading = self._reading, None
        pieces, trouble = reading.result()
        if trouble:
            self._report(trouble)
        else:
            self._is_reported = False
        yield from pieces

    def follow_outputs(self, paths: Collection[str]) -> None:
        """Follow these files, too, from the next scan on; see `ports.TrainingLog`."""
        self.folder.follow_outputs(paths)

    def count_rest(self, path: str) -> Cursor | None:
        """Note that the last line of a log was trouble; see `ports.TrainingLog`."""
        return self.folder.count_rest(path)

    def recent_logs(self) -> frozenset[str]:
        """Return the names of the logs that were written within the last hour, as of the last reading."""
        return self._recent

    def is_waiting(self) -> bool:
        """Return whether a reading hangs or is slow; see `ports.TrainingLog`."""
        return self._reading is not None

    def saved_bytes(self) -> int:
        """Return the size of the newest checkpoints, as of the last scan."""
        return self.folder.saved_bytes()

    def close(self) -> None:
        """Close all files, unless a reading hangs: the thread ends with the process."""
        if self._reading is None or self._reading.done():
            self.folder.close()

    def _report(self, why: str) -> None:
        if not self._is_reported:
            self._is_reported = True
            log.warning("the logs of the training cannot be read: %s", why)

    def _read(self) -> tuple[list[LogPiece], str]:
        """Return what is new, and why that is not all; empty: it is."""
        pieces, trouble = [], ""
        try:
            for piece in self.folder.read():
                pieces.append(piece)  # noqa: PERF402 - what was read before an error counts
            self._recent = self.folder.recent_logs()
        except OSError as error:
            trouble = error.strerror or str(error)
        return pieces, trouble
