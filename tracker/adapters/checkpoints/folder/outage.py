"""Distinguishes an unavailable file server from a trainer that deletes checkpoints.

An unmounted file system leaves its empty mount point, or nothing, on the file system below: the folder exists, can be
read, and holds no checkpoint. A folder on another file system than the checkpoints proves nothing about them.
"""

from datetime import datetime
from pathlib import Path

from tracker.domain.checkpoints.watching import STALLED_S, is_quiet


class Outage:
    """State of the storage of one output folder. Not thread-safe."""

    def __init__(self) -> None:
        self._device: int | None = None
        """Device of the output folder when it last held a checkpoint."""
        self._since: dict[Path, datetime] = {}
        """Checkpoints that cannot be read -> since when."""
        self.is_on = False
        """Whether the last scan could not read something that the next one may find again."""

    def begin_look(self) -> None:
        """Reset the state for a new scan."""
        self.is_on = False

    def note(self, path: Path, now: datetime) -> bool:
        """Record that a checkpoint cannot be read; return whether this has lasted too long for a mere outage."""
        lasts = is_quiet(self._since.setdefault(path, now), now, STALLED_S)
        self.is_on |= not lasts
        return lasts

    def end(self, path: Path) -> None:
        """Record that a checkpoint was read."""
        self._since.pop(path, None)

    def remember(self, output_dir: Path) -> None:
        """Record that the output folder holds checkpoints now."""
        self._device = _device(output_dir)

    def is_unmounted(self, output_dir: Path) -> bool:
        """Return whether the output folder, now without checkpoints, is on another file system than they were."""
        return self._device is not None and _device(output_dir) != self._device


def _device(path: Path) -> int | None:
    """Return the device of a folder, or of its nearest existing parent; None: it cannot be read."""
    for folder in (path, *path.parents):
        try:
            return folder.stat().st_dev
        except FileNotFoundError:
            continue
        except OSError:
            return None
    return None
