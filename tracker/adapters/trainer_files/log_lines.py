"""The lines of a trainer's log, one after the other: a log may be larger than the memory, and a line without an end.

A log that ends in `.gz` is unpacked; of a `trainer_state.json`, each row of its history is a line.
"""

import gzip
import json
import zlib
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

from eval_jobs import limits
from eval_jobs.errors import ConfigError
from eval_jobs.host.bounded.files import open_regular, read_bytes
from eval_jobs.host.bounded.json_text import parse_json
from tracker.domain.health.logs.step_lines import step_row
from tracker.domain.health.logs.text import MAX_LINE_BYTES
from tracker.domain.health.series.kinds import loss_in


def log_lines(path: Path) -> Iterator[str]:
    """Yield the lines without their ends; bytes that are no UTF-8 are replaced.

    Raises:
        ConfigError: there is no such file, it cannot be read, or it is a pipe or a device.
    """
    try:
        if path.suffix == ".json":
            yield from _rows_of_state(path)
            return
        with open_regular(path) as file:
            if path.suffix == ".gz":
                yield from _lines(BufferedReader(gzip.GzipFile(fileobj=file)))
            else:
                yield from _lines(file)
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


def _lines(file: BufferedReader) -> Iterator[str]:
    while line := file.readline(MAX_LINE_BYTES):
        is_cut = not line.endswith(b"\n")
        yield line.rstrip(b"\r\n").decode(errors="replace").replace("\0", "")
        while is_cut and (rest := file.readline(MAX_LINE_BYTES)):
            is_cut = not rest.endswith(b"\n")


def _rows_of_state(path: Path) -> Iterator[str]:
    try:
        state = parse_json(read_bytes(path, limits.DOCUMENT))
    except ValueError as error:
        what = f"{path} is no trainer_state.json: {error}"
        raise ConfigError(what, hint="pass a log, JSON lines, or a trainer_state.json") from error
    rows = state.get("log_history") if isinstance(state, dict) else None
    for row in rows if isinstance(rows, list) else ():
        yield json.dumps(row)
