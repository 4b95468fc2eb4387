"""The folder that the demo works in: made anew each time, and never anybody else's.

A marker file says that a folder is the demo's. Its lock is held by the demo and by the processes it starts, so a
second demo cannot pull the folder away from under a first one, or from under what is left of a killed one.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

MARKER = ".made-by-the-checkpoint-tracker-demo"
NEEDED_BYTES = 500_000_000
"""Checkpoints, pins, results and MLflow's store take about a tenth of it; the rest is vLLM's scratch space."""


class FolderUnusable(Exception):
    """The demo cannot work there. The message says why and what to do."""

    def __init__(self, message: str, *, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@contextmanager
def fresh_folder(folder: Path) -> Iterator[TextIO]:
    """Make `folder` anew and yield its open marker, whose file descriptor holds the lock.

    Raises:
        FolderUnusable: it is somebody else's, another demo works in it, or the disk is full.
    """
    _check_space(folder)
    with _opened_marker(folder) as old:
        if old is not None:
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / MARKER).open("x", encoding="utf-8") as marker:
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield marker


# --- private


def _check_space(folder: Path) -> None:
    existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    if free < NEEDED_BYTES:
        raise FolderUnusable(
            f"only {free // 1_000_000} MB are free on the disk of {existing}, and the demo needs "
            f"{NEEDED_BYTES // 1_000_000} MB: free some space, or choose a folder on another disk with --dir",
            exit_code=4,
        )


@contextmanager
def _opened_marker(folder: Path) -> Iterator[TextIO | None]:
    """Yield the locked marker of an earlier demo, or None where nothing is in the way."""
    if not folder.is_symlink() and not folder.exists():
        yield None
        return
    if folder.is_symlink() or not folder.is_dir():
        raise FolderUnusable(f"{folder} is not a folder: choose another with --dir", exit_code=2)
    if not any(folder.iterdir()):
        yield None
        return
    if not (folder / MARKER).is_file():
        raise FolderUnusable(
            f"{folder} contains files that are not from the demo: choose another folder with --dir",
            exit_code=2,
        )
    with (folder / MARKER).open(encoding="utf-8") as marker:
        _lock(marker, folder)
        yield marker


def _lock(marker: TextIO, folder: Path) -> None:
    try:
        fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        processes = " and ".join(marker.read().split("\n")[:-1]) or "a demo"
        raise FolderUnusable(
            f"another demo is running in {folder} ({processes}): wait, stop it, or choose another folder with --dir",
            exit_code=2,
        ) from None
