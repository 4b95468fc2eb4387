"""The files with settings that a command names, read in a thread: their file server may hang."""

import re
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from eval_jobs import limits
from eval_jobs.host.bounded.answers import in_thread
from eval_jobs.host.bounded.files import text_of
from tracker.domain.health.processes.jobs import absolute

PATIENCE_S = 2.0
MAX_PATHS = 200
"""Paths in one file."""
_FILE = re.compile(r"\.(?:ya?ml|json)$")
_PATH = re.compile(r"(?:^|[\s\"':=\[,])((?:/|\./|\.\./)?[\w.\-]+(?:/[\w.\-]+)*/?)")


@dataclass(kw_only=True)
class SettingsFiles:
    """Reads the files of one command at a time; while one hangs, no other is read."""

    patience_s: float = PATIENCE_S
    _reading: Future[tuple[str, ...]] | None = None

    def paths(self, arguments: Sequence[str], folder: str) -> tuple[str, ...] | None:
        """Return the paths in the files that the arguments of a process in `folder` name; None: not read yet."""
        named = [argument.partition("=")[2] or argument for argument in arguments[1:]]
        files = [absolute(path, folder) for path in named if _FILE.search(path)]
        if not files:
            return ()
        if self._reading is not None and not self._reading.done():
            return None
        self._reading = in_thread("settings of trainings", lambda: _paths(files))
        with suppress(NotYet):
            return self._reading.result(self.patience_s)
        return None


def _paths(files: Sequence[str]) -> tuple[str, ...]:
    found: list[str] = []
    for path in files:
        with suppress(OSError, ValueError):
            text = text_of(Path(path), limits.SETTINGS, errors="replace")
            found += _PATH.findall(text)[:MAX_PATHS]
    return tuple(dict.fromkeys(found))
