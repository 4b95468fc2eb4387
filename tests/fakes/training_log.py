"""A trainer's logs in memory."""

from collections.abc import Collection, Iterator
from dataclasses import replace

from tests.fakes.clock import FakeClock
from tracker.domain.health.logs.cursor import Cursor, LogPiece
from tracker.domain.health.logs.streams import Stream
from tracker.domain.health.logs.text import split

REST_S = 2.0


class FakeTrainingLog:
    """`tracker.ports.TrainingLog` over texts; `cursors` are those of an earlier process."""

    def __init__(
        self,
        logs: dict[str, bytes],
        clock: FakeClock,
        cursors: dict[str, Cursor],
        *,
        run: str = "run",
        is_first: bool,
        elsewhere: dict[str, bytes] | None = None,
    ) -> None:
        self._logs = logs
        self._clock = clock
        self._run = run
        self._elsewhere = elsewhere or {}
        self._outputs: set[str] = set()
        sizes = {path: len(content) if is_first else 0 for path, content in logs.items()}
        self._cursors = {path: Cursor(inode=1, history_bytes=size) for path, size in sizes.items()} | cursors
        self._rests: dict[str, tuple[str, float]] = {}
        self.saved = 0
        self.is_closed = False

    def read(self) -> Iterator[LogPiece]:
        outputs = {path: self._elsewhere[path] for path in self._outputs}
        for path, content in (self._logs | outputs).items():
            cursor = self._cursors.setdefault(path, Cursor(inode=1))
            piece = split(content[cursor.offset :], cursor.text)
            lines = piece.lines
            if cursor.has_rest_trouble and lines:
                lines = (lines[0]._replace(is_known=True), *lines[1:])
            if piece.taken:
                moved = replace(cursor, offset=cursor.offset + piece.taken, text=piece.state, has_rest_trouble=False)
                self._cursors[path] = moved
                yield replace(self._piece(path, cursor), lines=lines, cursor=moved)
            elif piece.rest and self._has_waited(path, piece.rest) and not cursor.has_rest_trouble:
                yield replace(self._piece(path, cursor), rest=piece.rest)

    def follow_outputs(self, paths: Collection[str]) -> None:
        self._outputs = {path for path in paths if path in self._elsewhere}
        for path in self._outputs:
            self._cursors.setdefault(path, Cursor(inode=1, history_bytes=len(self._elsewhere[path])))

    def count_rest(self, path: str) -> Cursor | None:
        self._cursors[path] = replace(self._cursors[path], has_rest_trouble=True)
        return self._cursors[path]

    def recent_logs(self) -> frozenset[str]:
        return frozenset(self._logs)

    def is_waiting(self) -> bool:
        return False

    def saved_bytes(self) -> int:
        return self.saved

    def close(self) -> None:
        self.is_closed = True

    def _piece(self, path: str, cursor: Cursor) -> LogPiece:
        is_history = cursor.offset < cursor.history_bytes
        stream = Stream(name=path, read_at=self._clock.now(), is_history=is_history)
        return LogPiece(path=path, run_id=self._run, stream=stream, cursor=cursor)

    def _has_waited(self, path: str, rest: str) -> bool:
        now_s = self._clock.monotonic_s()
        known, since_s = self._rests.get(path, ("", 0.0))
        if rest != known:
            self._rests[path] = (rest, now_s)
            return False
        if now_s - since_s < REST_S:
            return False
        self._rests[path] = (rest, float("inf"))
        return True
