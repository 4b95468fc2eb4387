"""Reads lines as one log, without a file."""

from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import islice

from tracker.config.health import load_rules
from tracker.domain.health.logs.streams import Stream
from tracker.domain.health.logs.text import RawLine
from tracker.domain.health.run_log import RunLog
from tracker.domain.health.run_state import RunState, StreamState
from tracker.domain.records.training import TrainingIncident

LINES_AT_ONCE = 1000
READ_AT = datetime(2026, 1, 1, tzinfo=UTC)


def read_log(lines: Iterable[str], log: RunLog) -> RunLog:
    """Have the reader of a run read all lines of a single log, and return it."""
    stream, state = Stream(name=""), StreamState()
    numbered = enumerate(lines, start=1)
    while part := list(islice(numbered, LINES_AT_ONCE)):
        for number, text in part:
            log.take(RawLine(number=number, text=text), stream, state)
        log.end_piece(stream, state)
    return log


def read_incident(*lines: str, step: int = 1198, at: datetime = READ_AT) -> TrainingIncident:
    """Return the one incident of a log that reached `step` and has these lines then."""
    log = RunLog(rules=load_rules().lines, state=RunState(run_id="run"))
    stream, state = Stream(name="train.log", read_at=at), StreamState()
    for number, text in enumerate((f"step {step} | loss: 2.5", *lines), start=1):
        log.take(RawLine(number=number, text=text), stream, state)
    (found,) = (*log.incidents(), *log.series_incidents(stream))
    return found
