"""What is in the folders of a trainer. One that cannot be read has nothing in it: the next scan asks again."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from tracker.domain.checkpoints.names import steps_in
from tracker.domain.health.logs.streams import is_attempt, is_event_file, is_run_folder, is_torchrun_folder

MAX_NAMES = 50_000
"""Names in a folder that are looked at."""


def events_in(folder: os.DirEntry[str]) -> Iterator[tuple[str, str]]:
    """Yield the paths of the event files in a folder, as those of the run itself."""
    for entry in entries(Path(folder.path)):
        if is_event_file(entry.name):
            yield entry.path, ""


def of_ranks(inside: Iterable[os.DirEntry[str]], parent: str) -> Iterator[os.DirEntry[str]]:
    """Yield what torchrun writes for each rank below a folder: <run id>_<8 characters>/attempt_0/7/stdout.log."""
    for entry in inside:
        is_rank = is_attempt(parent) and entry.name.isdigit()
        if (is_rank or is_torchrun_folder(entry.name)) and is_folder(entry):
            below = entries(Path(entry.path))
            yield from below if is_rank else of_ranks(below, entry.name)


def is_run(name: str, inside: Sequence[os.DirEntry[str]]) -> bool:
    """Return whether a folder below the output folder is that of a run of its own."""
    return is_run_folder(name) or bool(steps_in(entry.name for entry in inside))


def is_link(path: str) -> bool:
    """Return whether a path is a symbolic link."""
    with suppress(OSError):
        return Path(path).is_symlink()
    return False


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder, and no link to one."""
    with suppress(OSError):
        return entry.is_dir(follow_symlinks=False)
    return False


def entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return what a folder has, at most `MAX_NAMES`."""
    with suppress(OSError), os.scandir(folder) as found:
        return list(islice(found, MAX_NAMES))
    return []
