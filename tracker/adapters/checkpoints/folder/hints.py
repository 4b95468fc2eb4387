"""File events as hints that something may have changed. They can overflow or get lost, and never cross a network."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

from watchdog import events
from watchdog.observers import Observer

log = logging.getLogger(__name__)

# Without opening and closing of files that are only read: our own reads would be hints to read again.
_EVENTS: list[type[events.FileSystemEvent]] = [
    events.DirCreatedEvent,
    events.DirDeletedEvent,
    events.DirMovedEvent,
    events.FileClosedEvent,
    events.FileCreatedEvent,
    events.FileDeletedEvent,
    events.FileModifiedEvent,
    events.FileMovedEvent,
]


class Hints:
    """Calls `on_change` from a separate thread whenever something in `folder` was written, moved or deleted.

    The argument is the path, as far as it is known: for a new folder, it may be only the path of the folder itself.
    """

    def __init__(self, folder: Path, on_change: Callable[[str], None]) -> None:
        self._folder = folder
        self._handler = _Handler(on_change)
        self._observer = Observer()
        self._watched: tuple[int, int] | None = None
        self._is_off = False

    def follow(self) -> bool:
        """Watch the folder once it exists, and again if it was replaced; return whether watching has just begun."""
        if self._is_off:
            return False
        try:
            status = self._folder.stat()
        except OSError:
            return False  # it does not exist yet, or its server is unavailable
        identity = (status.st_dev, status.st_ino)
        if identity == self._watched:
            return False
        try:
            self._restart()
        except FileNotFoundError:
            return False
        except OSError as error:
            # No watches left (fs.inotify.max_user_watches) or none possible: rescanning alone misses nothing.
            log.warning("no file events for %s (%s); polling it instead", self._folder, error)
            self._is_off = True
            return False
        self._watched = identity
        return True

    def close(self) -> None:
        """Stop watching. Calling it twice is harmless."""
        if self._observer.is_alive():
            self._observer.stop()
            self._observer.join()

    def _restart(self) -> None:
        self.close()
        self._observer = Observer()
        self._observer.schedule(self._handler, str(self._folder), recursive=True, event_filter=_EVENTS)
        self._observer.start()


class _Handler(events.FileSystemEventHandler):
    def __init__(self, on_change: Callable[[str], None]) -> None:
        self._on_change = on_change

    def on_any_event(self, event: events.FileSystemEvent) -> None:
        self._on_change(os.fsdecode(event.dest_path or event.src_path))
