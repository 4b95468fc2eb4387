"""Tells a file server that is away from a trainer that deletes.

A mount that goes away leaves its empty mount point, or nothing, on the file system below: the folder is there, can be
read, and holds no checkpoint. What lies on another file system than the checkpoints did says nothing about them.
"""

from datetime import datetime
from pathlib import Path

from tracker.domain.checkpoints.watching import STALLED_S, is_quiet


class Outage:
    """What is known about the storage of one output folder. Not safe for threads."""

    def __init__(self) -> None:
        self._device: int | None = None
        """Of the output folder when it last held a checkpoint."""
        self._since: dict[Path, datetime] = {}
        """Checkpoints that cannot be read, and since when."""
        self.is_on = False
        """Something could not be read in the last look, and may be there again in the next."""

    def begin_look(self) -> None:
        """Start afresh."""
        self.is_on = False

    def note(self, path: Path, now: datetime) -> bool:
        """Note that a checkpoint cannot be read; return whether it was so for so long that it is no mere outage."""
        lasts = is_quiet(self._since.setdefault(path, now), now, STALLED_S)
        self.is_on |= not lasts
        return lasts

    def end(self, path: Path) -> None:
        """Note that a checkpoint was read."""
        self._since.pop(path, None)

    def remember(self, output_dir: Path) -> None:
        """Note that the output folder holds checkpoints now."""
        self._device = _device(output_dir)

    def is_unmounted(self, output_dir: Path) -> bool:
        """Return whether a folder that holds no checkpoint any more is on another file system than they were."""
        return self._device is not None and _device(output_dir) != self._device


# --- private


def _device(path: Path) -> int | None:
    """Return the file system of a folder, or of the nearest one above it that exists; None: it does not answer."""
    for folder in (path, *path.parents):
        try:
            return folder.stat().st_dev
        except FileNotFoundError:
            continue
        except OSError:
            return None
    return None
