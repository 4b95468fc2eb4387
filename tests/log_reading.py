"""Reads lines as one log, without a file."""

from collections.abc import Iterable
from itertools import islice

from tracker.domain.health.logs.streams import Stream
from tracker.domain.health.logs.text import RawLine
from tracker.domain.health.run_log import RunLog
from tracker.domain.health.run_state import StreamState

LINES_AT_ONCE = 1000


def read_log(lines: Iterable[str], log: RunLog) -> RunLog:
    """Have the reader of a run read all lines of a single log, and return it."""
    stream, state = Stream(name=""), StreamState()
    numbered = enumerate(lines, start=1)
    while part := list(islice(numbered, LINES_AT_ONCE)):
        for number, text in part:
            log.take(RawLine(number=number, text=text), stream, state)
        log.try_code(stream, state)
    return log
