"""Logs that are read in a thread: a file server that hangs blocks the thread, not the caller."""

import logging
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
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
    _reading: Future[list[LogPiece]] | None = None
    _since_s: float = 0.0
    _is_reported: bool = False
    _is_recent: bool = False

    def read(self) -> Iterator[LogPiece]:
        """Yield what is new; nothing while an earlier reading hangs, whose lines come later."""
        now_s = self.clock.monotonic_s()
        if self._reading is None:
            self._reading, self._since_s = in_thread("training logs", self._read), now_s
        try:
            pieces = self._reading.result(timeout=self.patience_s)
        except NotYet:
            if now_s - self._since_s >= REPORT_S and not self._is_reported:
                self._is_reported = True
                log.warning("the logs of the training cannot be read: their file system does not respond")
            return
        self._reading, self._is_reported = None, False
        yield from pieces

    def count_rest(self, path: str) -> Cursor | None:
        """Note that the last line of a log was trouble; see `ports.TrainingLog`."""
        return self.folder.count_rest(path)

    def is_recent(self) -> bool:
        """Return whether a log was written within the last hour, as of the last reading."""
        return self._is_recent

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

    def _read(self) -> list[LogPiece]:
        pieces = list(self.folder.read())
        self._is_recent = self.folder.is_recent()
        return pieces
