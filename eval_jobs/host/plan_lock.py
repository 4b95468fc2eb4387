"""A lock for one evaluation at a time in a plan's folder, across processes.

Two processes can get the same plan: `tracker evaluate` next to a watcher, or a worker that sleeps past its lease. Both
would write, and the first to finish would delete files the other needs. The kernel releases locks of dead processes.
"""

import fcntl
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from eval_jobs.host.storage import mapped_storage_errors

log = logging.getLogger(__name__)

POLL_S = 0.5
_LOOKS, _LOOK_S = 5, 0.004
"""Attempts, and seconds between two: `is_locked` shares the lock for a moment."""
WAITS = "waiting for another evaluation of the same checkpoint"


@contextmanager
def held(path: Path, *, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock for the block; `on_wait` is called once if another process has it.

    Raises:
        DiskFull, StoreError: the lock file cannot be created.
    """
    file = _taken(path)
    if file is None:
        log.warning("waiting for %s, locked by another process (`fuser %s` shows its PID)", path, path)
        on_wait()
    while file is None:
        threading.Event().wait(POLL_S)
        file = _taken(path)
    with file:
        yield


@contextmanager
def held_if_free(path: Path) -> Iterator[bool]:
    """Hold the lock for the block if it is free, and yield whether it was; the lock file is deleted at the end.

    Raises:
        DiskFull, StoreError: the lock file cannot be created.
    """
    file = _taken(path)
    if file is None:
        yield False
        return
    with file:
        yield True
        path.unlink(missing_ok=True)


def locked_file(path: Path) -> IO[bytes] | None:
    """Return the file, locked until it is closed; None if another process has the lock.

    Raises:
        OSError: the file cannot be created.
    """
    while True:
        file = path.open("ab")
        try:
            if not _lock(file):
                file.close()
                return None
        except OSError:
            file.close()
            raise
        if is_in_place(path, file):
            return file
        file.close()


def is_locked(path: Path) -> bool:
    """Return whether a process has the lock of `locked_file`.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def is_in_place(path: Path, file: IO[bytes]) -> bool:
    """Return whether the open file is the one at `path`: a lock on a deleted file excludes no other process."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _lock(file: IO[bytes]) -> bool:
    """Lock the file; return False if another process has the lock."""
    for _ in range(_LOOKS):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            threading.Event().wait(_LOOK_S)
        else:
            return True
    return False


def _taken(path: Path) -> IO[bytes] | None:
    with mapped_storage_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        return locked_file(path)
