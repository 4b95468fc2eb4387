"""One pass over the logs of a training: new lines become points of curves and incidents, stored with the cursors.

    follower = LogFollower(log=log, store=store, reading=Reading(rules=rules), clock=clock, known=store.read_so_far())
    while ...:
        follower.follow()

It may be killed at any line and run again: what was read and how far it was read is stored in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from eval_jobs.ports import Clock
from tracker.domain.health.logs.cursor import Cursor, LogPiece
from tracker.domain.health.logs.masking import without_keys
from tracker.domain.health.logs.row_reader import RowReader
from tracker.domain.health.logs.streams import Stream
from tracker.domain.health.logs.user_formats import LogFormat
from tracker.domain.health.rules.code import CodeRules
from tracker.domain.health.rules.lines import Fits, LineRule, rule_fits
from tracker.domain.health.run_log import RunLog
from tracker.domain.health.run_state import RunState, StreamState
from tracker.domain.health.series.conditions import MetricCondition
from tracker.domain.health.stored import ReadNow, ReadSoFar
from tracker.domain.records.training import TrainingIncident
from tracker.domain.records.types import CurvePoint

if TYPE_CHECKING:  # the ports of the whole program import the statistics, and an agent stays small
    from tracker.ports.health import HealthStore, TrainingLog

PASS_CHARS = 4 << 20
"""Text that one pass reads, in readings of which each holds few lines in memory."""
READING_CHARS = 64 << 10
"""Characters of a full reading; after a smaller one, the logs have nothing more for now."""
MOST_UNSAVED = 1_000
"""Maximum number of points that wait to be saved."""
QUIET_S = 600.0
"""Seconds without a new line after which the newest points are published although a thinned curve would omit them."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How logs are read."""

    rules: tuple[LineRule, ...]
    conditions: tuple[MetricCondition, ...] = ()
    formats: tuple[LogFormat, ...] = ()
    fits: Fits = rule_fits
    mask: Callable[[str], str] = without_keys
    """Returns a text of a log without secrets."""
    code: CodeRules | None = None
    """Rules of other packages."""
    save_every_s: float = 0.0
    """Between two savings of points and positions; a new or changed incident is saved at once, with all of them."""

    def of_stream(self, path: str, known: StreamState | None, *, after: int = 0) -> StreamState:
        """Return the state of a log that was read so far, or of a new one; `after`: incidents before that."""
        state = known or StreamState(rows=RowReader(is_csv=path.endswith(".csv")), after=after)
        state.rows.formats = self.formats
        return state

    def of(self, state: RunState, host: str = "") -> RunLog:
        """Return the reader of a run; `host`: of the logs, if it is not the watcher's."""
        return RunLog(
            rules=self.rules,
            state=state,
            conditions=self.conditions,
            fits=self.fits,
            mask=self.mask,
            code=self.code,
            host=host,
        )


@dataclass(kw_only=True)
class _Unstored:
    """What was read and is not stored yet."""

    cursors: dict[str, Cursor] = field(default_factory=dict)
    """Of the logs that were read, by path."""
    newest: dict[str, Stream] = field(default_factory=dict)
    """The log that was read last, by run id."""
    has_failed: bool = False
    """Whether saving it has begun and not succeeded: nothing more is read until it does."""
    saved_s: float | None = None
    """When this process saved last, by the monotonic clock; None: never."""


@dataclass(kw_only=True)
class LogFollower:
    """Reads the logs of one training, pass by pass."""

    log: TrainingLog
    store: HealthStore
    reading: Reading
    clock: Clock
    known: ReadSoFar
    """What was read before this process."""
    is_replaced: bool = False
    """Whether another process reads these logs now: this one has to begin again with what is stored."""
    runs: dict[str, RunLog] = field(default_factory=dict)
    """Those of which anything was read by this process, by run id."""
    _streams: dict[str, StreamState] = field(default_factory=dict)
    _unstored: _Unstored = field(default_factory=_Unstored)
    _stored: dict[str, int] = field(default_factory=dict)
    """Hashes of the incidents as they were stored last, by id."""
    _is_in_history: bool = True
    _quiet_since_s: float | None = None

    def follow(self) -> bool:
        """Do one pass; return whether anything new was saved.

        Raises:
            StoreError: nothing was saved. The next pass saves it, and reads nothing before that.
        """
        if not self._unstored.has_failed:
            self._read()
        if not self._unstored.newest:
            return False
        incidents = self._new_incidents()
        is_due = bool(incidents) or self._is_due()
        return is_due and self._save(incidents)

    def close(self) -> None:
        """Save what waits to be saved, and release all files.

        Raises:
            StoreError: it was not saved. The next process reads it again.
        """
        try:
            if self._unstored.newest:
                self._save(self._new_incidents())
        finally:
            self.log.close()

    def run_of(self, run_id: str) -> RunLog:
        """Return the reader of a run."""
        if run_id not in self.runs:
            state = self.known.runs.get(run_id) or RunState(run_id=run_id)
            self.runs[run_id] = self.reading.of(state, self.known.host)
        return self.runs[run_id]

    def touch(self, run_id: str) -> None:
        """Have the next pass store the state of a run although nothing was read of it."""
        self._unstored.newest.setdefault(run_id, Stream(name="", read_at=self.clock.now()))

    def _read(self) -> None:
        has_history = False
        for piece in self._pieces():
            self._take(piece)
            has_history = has_history or piece.stream.is_history
        now_s = self.clock.monotonic_s()
        if self._unstored.newest or self._quiet_since_s is None:
            self._quiet_since_s = now_s
        elif now_s - self._quiet_since_s >= QUIET_S:
            self._release()
        if has_history:
            self._is_in_history = True  # also later: a last line without an end waits for it
        elif self._is_in_history:
            self._end_history()

    def _pieces(self) -> Iterator[LogPiece]:
        """Yield what is new, reading by reading, all with the same time."""
        now, taken = self.clock.now(), 0
        while taken < PASS_CHARS:
            before = taken
            for piece in self.log.read():
                yield replace(piece, stream=replace(piece.stream, read_at=now))
                taken += piece.chars
            if taken - before < READING_CHARS:
                return

    def _take(self, piece: LogPiece) -> None:
        run = self.run_of(piece.run_id)
        state = self._stream(piece.path, after=run.state.episodes)
        read_piece(piece, run, state)
        self._unstored.cursors[piece.path] = piece.cursor
        if piece.rest and run.take_rest(piece.rest, piece.cursor.text.lines + 1, piece.stream, state):
            self._unstored.cursors[piece.path] = self.log.count_rest(piece.path) or piece.cursor
        self._unstored.newest[piece.run_id] = piece.stream

    def _stream(self, path: str, *, after: int) -> StreamState:
        if path not in self._streams:
            known = self.known.streams.get(path)
            self._streams[path] = self.reading.of_stream(path, None if known is None else known[1], after=after)
        return self._streams[path]

    def _end_history(self) -> None:
        """Mark the history as read: everything that was written before the training was followed."""
        self._is_in_history = False
        recent = self.log.recent_logs()
        for run_id in sorted({*self.known.runs, *self.runs}):
            self.run_of(run_id).end_history(recent)
            self.touch(run_id)

    def _release(self) -> None:
        """Keep the newest points: nothing has followed them for long."""
        self._quiet_since_s = self.clock.monotonic_s()
        for run_id, run in self.runs.items():
            released = run.state.thinner.released()
            if released:
                run.points += released
                self.touch(run_id)

    def _save(self, incidents: Sequence[TrainingIncident]) -> bool:
        self._unstored.has_failed = True
        news = self._news(incidents)
        is_stored = self.store.save(news)
        self.is_replaced = not is_stored
        if is_stored:
            self._forget(news)
        return is_stored

    def _new_incidents(self) -> list[TrainingIncident]:
        """Return the incidents that differ from those that are saved."""
        incidents: list[TrainingIncident] = []
        for run_id, stream in self._unstored.newest.items():
            run = self.runs[run_id]
            for incident in (*run.incidents(), *run.series_incidents(stream)):
                if self._stored.get(incident.id) != hash(incident):
                    incidents.append(incident)
        return incidents

    def _is_due(self) -> bool:
        """Return whether points and positions are to be saved."""
        saved_s = self._unstored.saved_s
        if saved_s is None or self.clock.monotonic_s() - saved_s >= self.reading.save_every_s:
            return True
        return sum(len(run.points) for run in self.runs.values()) >= MOST_UNSAVED

    def _news(self, incidents: Sequence[TrainingIncident]) -> ReadNow:
        points: dict[str, Sequence[CurvePoint]] = {}
        states: dict[str, RunState] = {}
        for run_id in self._unstored.newest:
            run = self.runs[run_id]
            points[run_id], states[run_id] = run.points, run.state
        mask = self.reading.mask
        streams = {path: (cursor, self._streams[path].masked(mask)) for path, cursor in self._unstored.cursors.items()}
        return ReadNow(
            reader=self.known.reader,
            read_at=self.clock.now(),
            runs=states,
            streams=streams,
            incidents=tuple(incidents),
            points=points,
        )

    def _forget(self, stored: ReadNow) -> None:
        for incident in stored.incidents:
            self._stored[incident.id] = hash(incident)
        for run_id in stored.runs:
            self.runs[run_id].forget_taken()
        self._unstored = _Unstored(saved_s=self.clock.monotonic_s())


def read_piece(piece: LogPiece, run: RunLog, state: StreamState) -> None:
    """Have the reader of a run read the next piece of a log, whose state is `state`."""
    for line in piece.lines:
        run.take(line, piece.stream, state)
    for row in piece.rows:
        run.take_row(row, piece.stream, state)
    run.end_piece(piece.stream, state)


def cursors_of(known: ReadSoFar) -> Mapping[str, Cursor]:
    """Return how far earlier processes have read each log."""
    return {path: cursor for path, (cursor, _) in known.streams.items()}
