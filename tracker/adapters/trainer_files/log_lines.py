"""Whole logs, which no trainer writes to now: read as those that are followed, piece by piece.

A log that ends in `.gz` is unpacked; of a `trainer_state.json`, each row of its history is a line.
"""

import json
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from eval_jobs import limits
from eval_jobs.errors import ConfigError
from eval_jobs.host.bounded.files import open_regular, read_bytes
from eval_jobs.host.bounded.json_text import parse_json
from tracker.adapters.trainer_files.event_files import FollowedEvents
from tracker.adapters.trainer_files.followed_file import FollowedFile, ReadPart
from tracker.domain.health.logs.cursor import Cursor, LogPiece
from tracker.domain.health.logs.step_lines import step_row
from tracker.domain.health.logs.streams import Stream, is_event_file, rank_of_path
from tracker.domain.health.logs.text import MAX_LINE_BYTES, RawLine
from tracker.domain.health.series.kinds import loss_in

ROWS_AT_ONCE = 1000


def log_pieces(path: Path) -> Iterator[LogPiece]:
    """Yield all that is in a log.

    Raises:
        ConfigError: there is no such file, it cannot be read, or it is a pipe or a device.
    """
    stream = Stream(name=str(path), rank=rank_of_path(str(path)))
    try:
        for part in _parts(path):
            yield LogPiece(
                path=str(path), run_id="", stream=stream, cursor=part.cursor, lines=part.lines, rows=part.rows
            )
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"cannot read {path}: {error}", hint="pass a log file that you may read") from error


def begins_with_step(path: Path) -> bool | None:
    """Return whether the first line of a file names a step and a loss; None: it has no line yet, or is unreadable."""
    try:
        with open_regular(path) as file:
            line = file.readline(MAX_LINE_BYTES)
    except OSError:
        return None
    if not line.endswith(b"\n"):
        return False if len(line) == MAX_LINE_BYTES else None
    row = step_row(line.decode(errors="replace").strip())
    return row is not None and row.step is not None and loss_in(row.values) is not None


def _parts(path: Path) -> Iterator[ReadPart]:
    if path.suffix == ".json":
        yield from _rows_of_state(path)
    elif is_event_file(path.name):
        events = FollowedEvents(path)
        while (part := events.read()) is not None:
            yield part
    else:
        yield from FollowedFile(path).read_all()


def _rows_of_state(path: Path) -> Iterator[ReadPart]:
    try:
        state = parse_json(read_bytes(path, limits.DOCUMENT))
    except ValueError as error:
        what = f"{path} is no trainer_state.json: {error}"
        raise ConfigError(what, hint="pass a log, JSON lines, or a trainer_state.json") from error
    rows = state.get("log_history") if isinstance(state, dict) else None
    numbered = enumerate(rows if isinstance(rows, list) else (), start=1)
    while part := tuple(islice(numbered, ROWS_AT_ONCE)):
        lines = tuple(RawLine(number=number, text=json.dumps(row)) for number, row in part)
        yield ReadPart(cursor=Cursor(inode=path.stat().st_ino), is_history=False, lines=lines)
