"""`tracker.ports.TrainingLog` over the files that a trainer writes in and below its output folder.

Files are found every `SCAN_S`; those known are asked for their size at each reading, because file events do not cross
NFS. Logs with exact numbers are read before those that are rounded for people: the first one of a step decides.
"""

import logging
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import InitVar, dataclass, field, replace
from datetime import datetime
from itertools import islice
from pathlib import Path

from eval_jobs.errors import ConfigError
from eval_jobs.ports import Clock
from tracker.adapters.trainer_files.event_files import FollowedEvents
from tracker.adapters.trainer_files.followed_file import FollowedFile, ReadPart
from tracker.adapters.trainer_files.followed_logs import FollowedLog, beginning_after, queues_of
from tracker.adapters.trainer_files.saved import saved_bytes
from tracker.adapters.trainer_files.search import MAX_FILES, FoundLog, LogPlaces, LogSearch
from tracker.domain.health.logs.cursor import Cursor, LogPiece
from tracker.domain.health.logs.streams import (
    NEVER,
    Stream,
    is_event_file,
    is_exact,
    rank_by_pattern,
    rank_of_path,
)

log = logging.getLogger(__name__)

SCAN_S = 10.0
REST_S = 2.0
"""Seconds after which a line without an end is searched for trouble."""
MAX_LEFT = 4 * MAX_FILES
"""Newest files that are recognised by another name."""
READING_CHARS = 128 << 10
"""Text that one reading takes, of all logs by turns: as lines it takes eight times as much memory."""
RECENT_S = 3600.0
UNREADABLE_HINT = "let the user of this process read the file, and look at its disk"


@dataclass(kw_only=True)
class LogFolder:
    """Follows all logs of one run."""

    places: InitVar[LogPlaces]
    clock: Clock
    cursors: Mapping[str, Cursor]
    """By path, of an earlier process."""
    is_first: bool
    """Whether the run was never followed before: what its logs have now is history."""
    _search: LogSearch = field(init=False)
    _followed: dict[str, FollowedLog] = field(default_factory=dict)
    _left: dict[int, Cursor] = field(default_factory=dict)
    """How far each file was read that is followed or was, by its inode: it may be found again by another name."""
    _stored: dict[str, Cursor] = field(default_factory=dict)
    """The same by its path."""
    _scanned_s: float | None = None
    _saved_bytes: int = 0
    _read_at: datetime = NEVER
    """Begin of the present reading: all of its lines are of one moment."""

    def __post_init__(self, places: LogPlaces) -> None:
        """Know the files of earlier processes, whatever their names are now."""
        self._search = LogSearch(places=places)
        self._stored |= self.cursors
        self._left |= {cursor.inode: cursor for cursor in self.cursors.values()}

    def read(self) -> Iterator[LogPiece]:
        """Yield what is new; see `ports.TrainingLog`."""
        now_s = self.clock.monotonic_s()
        self._read_at = self.clock.now()
        if self._scanned_s is None or now_s - self._scanned_s >= SCAN_S:
            self._scan()
            self._scanned_s = now_s
        waiting, taken = deque(queues_of(self._followed)), 0
        while waiting and taken < READING_CHARS:
            queue = waiting.popleft()
            path = str(queue[0].file.path)
            piece = self._next(queue[0], now_s)
            if piece is None:
                queue.popleft()  # it has nothing more: it is the turn of the log of the next job
                if queue:
                    waiting.appendleft(queue)
                continue
            yield piece
            taken += piece.chars
            if taken >= READING_CHARS:
                self._followed = beginning_after(self._followed, path)
            if not piece.rest:  # else its trouble is counted first
                waiting.append(queue)

    def follow_outputs(self, paths: Collection[str]) -> None:
        """Follow these files, too, from the next scan on; see `ports.TrainingLog`."""
        self._search.places = replace(self._search.places, outputs=frozenset(paths))

    def count_rest(self, path: str) -> Cursor | None:
        """Note that the last line of a log was trouble; see `ports.TrainingLog`."""
        return self._followed[path].file.count_rest()

    def recent_logs(self) -> frozenset[str]:
        """Return the names of the logs that were written within `RECENT_S`, by this machine's clock."""
        now, found = self.clock.now().timestamp(), set[str]()
        for path in self._followed:
            with suppress(OSError):
                if abs(now - Path(path).stat().st_mtime) <= RECENT_S:
                    found.add(self._search.shown(path))
        return frozenset(found)

    def is_waiting(self) -> bool:
        """Return False: each reading ends before the next one."""
        return False

    def saved_bytes(self) -> int:
        """Return the size of the newest sub-folders, as of the last scan; see `ports.TrainingLog`."""
        return self._saved_bytes

    def close(self) -> None:
        """Close all files."""
        for followed in self._followed.values():
            followed.file.close()

    def _next(self, followed: FollowedLog, now_s: float) -> LogPiece | None:
        """Return the next part of a log, or its last line if it has waited for its end; None: there is neither."""
        if followed.known is not None:
            known, followed.known = followed.known, None
            return self._piece(followed, ReadPart(cursor=known, is_history=False))
        try:
            part = followed.file.read()
            followed.is_silenced = False
        except FileNotFoundError:
            return None  # deleted: forgotten at the next scan
        except ConfigError as error:
            self._search.warn("tensorboard", f"{error.message}; hint: {error.hint}")
            return None
        except OSError as error:
            if not followed.is_silenced:
                log.warning(
                    "cannot read %s: %s; hint: %s", followed.file.path, error.strerror or error, UNREADABLE_HINT
                )
            followed.is_silenced = True
            return None
        return self._rest(followed, now_s) if part is None else self._piece(followed, part)

    def _piece(self, followed: FollowedLog, part: ReadPart) -> LogPiece:
        path = str(followed.file.path)
        self._stored[path] = part.cursor
        self._left.pop(part.cursor.inode, None)
        self._left[part.cursor.inode] = part.cursor
        stream = Stream(
            name=self._search.shown(path), rank=followed.rank, read_at=self._read_at, is_history=part.is_history
        )
        return LogPiece(
            path=path, run_id=followed.run_id, stream=stream, cursor=part.cursor, lines=part.lines, rows=part.rows
        )

    def _rest(self, followed: FollowedLog, now_s: float) -> LogPiece | None:
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

    def _scan(self) -> None:
        self._find()
        if self._search.places.output_dir is not None:
            self._saved_bytes = saved_bytes(self._search.places.output_dir, self._search.places.skip)

    def _find(self) -> None:
        found = {log.path: log for log in islice(self._search.newest(), MAX_FILES)}
        for path, one in reversed(found.items()):  # oldest first: the order of the training
            if path in self._followed:
                self._followed[path].run_id = self._run_id(one.sub_folder)
            elif not self._is_open(one.inode):  # else it was renamed, and is read to its end first
                self._followed[path] = self._begun(one)
        for path in self._followed.keys() - found.keys():
            if len(found) == MAX_FILES or self._followed[path].is_output:
                self._followed.pop(path).file.close()  # the newest ones need the descriptors, and others may print now
                continue
            with suppress(OSError):  # a network file system that fails says nothing about the file
                if not Path(path).exists() and self._followed[path].file.is_drained():
                    self._followed.pop(path).file.close()
        while len(self._left) > MAX_LEFT:
            del self._left[next(iter(self._left))]

    def _is_open(self, inode: int) -> bool:
        for followed in self._followed.values():
            if followed.file.cursor is not None and followed.file.cursor.inode == inode:
                return True
        return False

    def _begun(self, found: FoundLog) -> FollowedLog:
        path, stored = Path(found.path), self._stored.get(found.path)
        is_events = is_event_file(path.name)
        left = None if is_events else self._left.get(found.inode)  # a number may be used again: the content decides
        is_renamed = left is not None and (stored is None or stored.inode != found.inode)
        follow = FollowedEvents if is_events else FollowedFile
        return FollowedLog(
            file=follow(path, left or stored, is_history=found.is_output or self._is_first_scan()),
            run_id=self._run_id(found.sub_folder),
            rank=self._rank(found.path),
            is_exact=is_exact(path.name),
            known=left if is_renamed else None,
            is_output=found.is_output,
        )

    def _rank(self, path: str) -> int | None:
        for pattern in self._search.places.patterns:
            rank = rank_by_pattern(path, pattern)
            if rank is not None:
                return rank
        return rank_of_path(path)

    def _is_first_scan(self) -> bool:
        return self.is_first and self._scanned_s is None

    def _run_id(self, sub_folder: str) -> str:
        return f"{self._search.places.run}/{sub_folder}" if sub_folder else self._search.places.run
