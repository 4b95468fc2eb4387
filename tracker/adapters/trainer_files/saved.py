"""How much a training has saved: a checkpoint that grows is progress although no step is logged."""

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

NEWEST = 3
MAX_ENTRIES = 2_000
DEPTH = 3


def saved_bytes(folder: Path) -> int:
    """Return the size of the newest sub-folders, whatever they are named: a save may begin under another name."""
    total = 0
    for path in _newest(folder):
        for size in islice(_sizes(path, DEPTH), MAX_ENTRIES):
            total += size
    return total


def _newest(folder: Path) -> list[str]:
    found: list[tuple[float, str]] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in islice(entries, MAX_ENTRIES):
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    found.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
    return [path for _, path in sorted(found)[-NEWEST:]]


def _sizes(path: str, depth: int) -> Iterator[int]:
    with suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            with suppress(OSError):
                if not entry.is_dir(follow_symlinks=False):
                    yield entry.stat(follow_symlinks=False).st_size
                elif depth > 1:
                    yield from _sizes(entry.path, depth - 1)
