"""`tracker.ports.TrainingLog` over the files that a trainer writes in and below its output folder.

Files are found every `SCAN_S`; those known are asked for their size at each reading, because file events do not cross
NFS. Logs with exact numbers are read before those that are rounded for people: the first one of a step decides.
"""

import logging
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from glob import iglob
from itertools import islice
from pathlib import Path

from eval_jobs.errors import ConfigError
from eval_jobs.host.paths import canonical
from eval_jobs.ports import Clock
from tracker.adapters.trainer_files.event_files import FollowedEvents
from tracker.adapters.trainer_files.followed_file import FollowedFile, ReadPart
from tracker.domain.checkpoints.names import steps_in
from tracker.domain.health.logs.cursor import Cursor, LogPiece
from tracker.domain.health.logs.streams import (
    NEVER,
    Stream,
    is_event_file,
    is_exact,
    is_log,
    is_run_folder,
    rank_of_path,
)

log = logging.getLogger(__name__)

SCAN_S = 10.0
REST_S = 2.0
"""Seconds after which a line without an end is searched for trouble."""
MAX_FILES = 500
"""Newest logs of a run that are followed."""
MAX_NAMES = 50_000
"""Names in a folder that are looked at."""
PARTS = 8
"""Parts of logs that one reading takes, of 256 KB each: what was found is stored in between."""
RECENT_S = 3600.0
EVENT_FOLDERS = frozenset(("runs", "logs", "tensorboard"))
"""In which trainers make a folder of event files for each start."""


@dataclass(frozen=True, kw_only=True)
class LogPlaces:
    """Where a run's logs are."""

    run: str
    output_dir: Path | None
    """Folder of the checkpoints; None: it is no folder."""
    patterns: tuple[str, ...] = ()
    """Absolute glob patterns of further logs."""


@dataclass(kw_only=True)
class _Followed:
    file: FollowedFile | FollowedEvents
    run_id: str
    rank: int | None
    is_exact: bool
    rest: str = ""
    rest_since_s: float = 0.0
    is_silenced: bool = False
    """Whether its error was reported."""


@dataclass(kw_only=True)
class LogFolder:
    """Follows all logs of one run."""

    places: LogPlaces
    clock: Clock
    cursors: Mapping[str, Cursor]
    """By path; of an earlier process."""
    is_first: bool
    """Whether the run was never followed before: what its logs have now is history."""
    _followed: dict[str, _Followed] = field(default_factory=dict)
    _scanned_s: float | None = None
    _warned: set[str] = field(default_factory=set)
    _read_at: datetime = NEVER
    """Begin of the present reading: all of its lines are of one moment."""

    def read(self) -> Iterator[LogPiece]:
        """Yield what is new; see `ports.TrainingLog`."""
        now_s = self.clock.monotonic_s()
        self._read_at = self.clock.now()
        if self._scanned_s is None or now_s - self._scanned_s >= SCAN_S:
            self._find()
            self._scanned_s = now_s
        waiting = sorted(self._followed.values(), key=lambda one: not one.is_exact)
        parts = 0
        while waiting and parts < PARTS:
            unread: list[_Followed] = []
            for followed in waiting:
                piece = self._next(followed, now_s)
                if piece is not None:
                    yield piece
                    unread.append(followed)
                    parts += 1
            waiting = unread

    def count_rest(self, path: str) -> Cursor | None:
        """Note that the last line of a log was trouble; see `ports.TrainingLog`."""
        return self._followed[path].file.count_rest()

    def is_recent(self) -> bool:
        """Return whether any log was written within `RECENT_S`, by this machine's clock."""
        now = self.clock.now().timestamp()
        for path in self._followed:
            with suppress(OSError):
                if abs(now - Path(path).stat().st_mtime) <= RECENT_S:
                    return True
        return False

    def close(self) -> None:
        """Close all files."""
        for followed in self._followed.values():
            followed.file.close()

    def _next(self, followed: _Followed, now_s: float) -> LogPiece | None:
        """Return the next part of a log, or its last line if it has waited for its end; None: there is neither."""
        try:
            part = followed.file.read()
            followed.is_silenced = False
        except FileNotFoundError:
            return None  # deleted: forgotten at the next scan
        except ConfigError as error:
            self._warn("tensorboard", f"{error.message}; hint: {error.hint}")
            return None
        except OSError as error:
            if not followed.is_silenced:
                log.warning("cannot read %s: %s", followed.file.path, error.strerror or error)
            followed.is_silenced = True
            return None
        return self._rest(followed, now_s) if part is None else self._piece(followed, part)

    def _piece(self, followed: _Followed, part: ReadPart) -> LogPiece:
        path = str(followed.file.path)
        stream = Stream(name=self._shown(path), rank=followed.rank, read_at=self._read_at, is_history=part.is_history)
        return LogPiece(
            path=path, run_id=followed.run_id, stream=stream, cursor=part.cursor, lines=part.lines, rows=part.rows
        )

    def _rest(self, followed: _Followed, now_s: float) -> LogPiece | None:
        """Return the last line if it has waited for its end long enough."""
        rest = followed.file.rest
        if rest != followed.rest:
            followed.rest, followed.rest_since_s = rest, now_s
        elif rest and now_s - followed.rest_since_s >= REST_S and followed.file.cursor is not None:
            followed.rest_since_s = float("inf")
            cursor = followed.file.cursor
            if not cursor.has_rest_trouble:
                part = ReadPart(cursor=cursor, is_history=cursor.offset < cursor.history_bytes)
                return replace(self._piece(followed, part), rest=rest)
        return None

    def _find(self) -> None:
        found = dict(islice(self._newest(), MAX_FILES))
        for path, sub_folder in reversed(found.items()):  # oldest first: the order of the training
            if path not in self._followed:
                self._followed[path] = self._begun(Path(path), sub_folder)
        for path in self._followed.keys() - found.keys():
            with suppress(OSError):  # a network file system that fails says nothing about the file
                if not Path(path).exists() and self._followed[path].file.is_drained():
                    self._followed.pop(path).file.close()

    def _begun(self, path: Path, sub_folder: str) -> _Followed:
        run = self.places.run
        cursor = self.cursors.get(str(path))
        follow = FollowedEvents if is_event_file(path.name) else FollowedFile
        return _Followed(
            file=follow(path, cursor, is_history=self.is_first and self._scanned_s is None),
            run_id=f"{run}/{sub_folder}" if sub_folder else run,
            rank=rank_of_path(str(path)),
            is_exact=is_exact(path.name),
        )

    def _newest(self) -> Iterator[tuple[str, str]]:
        """Yield path and sub-folder of a run of its own for each log, newest first, each file once."""
        found: dict[tuple[int, int], tuple[float, str, str]] = {}
        for path, sub_folder in self._all():
            with suppress(OSError):
                facts = Path(path).stat()
                if not stat.S_ISREG(facts.st_mode):
                    self._warn(path, "it is no regular file")
                    continue
                found.setdefault((facts.st_dev, facts.st_ino), (facts.st_mtime, path, sub_folder))
        if len(found) > MAX_FILES:
            self._warn(str(self.places.output_dir), f"it has {len(found):,} logs; the newest {MAX_FILES} are followed")
        for _, path, sub_folder in sorted(found.values(), reverse=True):
            yield path, sub_folder

    def _all(self) -> Iterator[tuple[str, str]]:
        if self.places.output_dir is not None:
            yield from self._inside(self.places.output_dir)
        for pattern in self.places.patterns:
            for path in islice(iglob(pattern, recursive=True), MAX_NAMES):  # noqa: PTH207 - it takes absolute patterns
                yield path, ""

    def _inside(self, folder: Path) -> Iterator[tuple[str, str]]:
        entries = _entries(folder)
        checkpoints = steps_in(entry.name for entry in entries)
        for entry in entries:
            if self._is_log(entry):
                yield entry.path, ""
            elif entry.name not in checkpoints and _is_folder(entry):
                yield from self._below(entry)

    def _below(self, folder: os.DirEntry[str]) -> Iterator[tuple[str, str]]:
        entries = _entries(Path(folder.path))
        is_run = is_run_folder(folder.name) or bool(steps_in(entry.name for entry in entries))
        for entry in entries:
            if self._is_log(entry):
                yield entry.path, folder.name if is_run else ""
            elif folder.name in EVENT_FOLDERS and _is_folder(entry):
                yield from _events_in(entry)

    def _is_log(self, entry: os.DirEntry[str]) -> bool:
        if not (is_log(entry.name) or is_event_file(entry.name)):
            return False
        if not entry.is_symlink():
            return True
        folder = self.places.output_dir
        inside = folder is not None and Path(canonical(entry.path)).is_relative_to(canonical(str(folder)))
        if not inside:
            self._warn(entry.path, "it is a link out of the folder: name it in [health] logs to follow it")
        return inside

    def _shown(self, path: str) -> str:
        folder = self.places.output_dir
        if folder is not None and Path(path).is_relative_to(folder):
            return str(Path(path).relative_to(folder))
        return path

    def _warn(self, path: str, why: str) -> None:
        if path not in self._warned:
            self._warned.add(path)
            log.warning("not followed: %s: %s", path, why)


def _events_in(folder: os.DirEntry[str]) -> Iterator[tuple[str, str]]:
    for entry in _entries(Path(folder.path)):
        if is_event_file(entry.name):
            yield entry.path, ""


def _is_folder(entry: os.DirEntry[str]) -> bool:
    with suppress(OSError):
        return entry.is_dir(follow_symlinks=False)
    return False


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(folder) as entries:
        return list(islice(entries, MAX_NAMES))
    return []
