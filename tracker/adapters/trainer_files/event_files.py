"""Scalars in TensorBoard's event files, from where the last reading ended.

    rows, offset = read_step_rows(file, offset)

A record is its length (uint64), a checksum of that, the event, and a checksum of it; all little endian.
"""

import math
import struct
from dataclasses import replace
from io import BufferedReader
from pathlib import Path
from typing import Any

from eval_jobs.errors import ConfigError
from eval_jobs.host.bounded.files import open_regular
from tracker.adapters.trainer_files.followed_file import ReadPart
from tracker.domain.health.logs.cursor import Cursor
from tracker.domain.health.logs.step_lines import StepRow, whole_step

MAX_RECORD_BYTES = 64 << 20
MAX_EVENTS = 100_000
"""Of one reading: the next one continues after them."""
_LENGTH = struct.Struct("<QI")
_CHECKSUM_BYTES = 4
_FLOATS = {1: struct.Struct("<f"), 2: struct.Struct("<d")}
"""By the number of the type in a tensor."""


def read_step_rows(file: BufferedReader, offset: int) -> tuple[list[StepRow], int]:
    """Return the scalars from an offset in bytes on, and the offset after the last whole record.

    Keys are the tags in lower case, as for all rows.
    Reading ends at a record that is not complete yet, or has an impossible length. Records without scalars, or that
    cannot be parsed, give no row.

    Raises:
        ConfigError: the package tensorboard is not installed.
        OSError: the file cannot be read.
    """
    try:
        from google.protobuf.message import DecodeError
        from tensorboard.compat.proto.event_pb2 import Event
    except ImportError as error:
        what = "TensorBoard's event files cannot be read without the package tensorboard"
        raise ConfigError(what, hint="install it: pip install 'checkpoint-tracker[tensorboard]'") from error
    rows: list[StepRow] = []
    file.seek(offset)
    for _ in range(MAX_EVENTS):
        record = _record(file)
        if record is None:
            break
        offset += _LENGTH.size + len(record) + _CHECKSUM_BYTES
        try:
            event = Event.FromString(record)
        except DecodeError:
            continue
        values = {value.tag.lower(): number for value in event.summary.value if (number := _scalar(value)) is not None}
        if values and whole_step(event.step) is not None:
            rows.append(StepRow(step=event.step, values=values))
    return rows, offset


class FollowedEvents:
    """One event file, as `FollowedFile`. Writers neither rotate nor truncate them."""

    rest = ""

    def __init__(self, path: Path, cursor: Cursor | None = None, *, is_history: bool = False) -> None:
        """Follow `path`; `is_history`: what it has now was written before the run was followed."""
        self.path = path
        self.cursor = cursor
        self._is_history = is_history

    def read(self) -> ReadPart | None:
        """Return the next scalars; None: there are none. Errors as `read_step_rows`."""
        facts = self.path.stat()
        before = self.cursor
        if before is None or before.inode != facts.st_ino:
            before = Cursor(inode=facts.st_ino, history_bytes=facts.st_size if self._is_history else 0)
            self._is_history = False
        if facts.st_size <= before.offset:
            self.cursor = before
            return None
        with open_regular(self.path) as file:
            rows, offset = read_step_rows(file, before.offset)
        self.cursor = replace(before, offset=offset)
        if offset == before.offset:
            return None
        return ReadPart(rows=tuple(rows), cursor=self.cursor, is_history=before.offset < before.history_bytes)

    def count_rest(self) -> Cursor | None:
        """Return the cursor; there is no rest."""
        return self.cursor

    def is_drained(self) -> bool:
        """Return True: a deleted file has nothing more."""
        return True

    def close(self) -> None:
        """Do nothing: the file is open while it is read."""


def _record(file: BufferedReader) -> bytes | None:
    head = file.read(_LENGTH.size)
    length, _ = _LENGTH.unpack(head) if len(head) == _LENGTH.size else (MAX_RECORD_BYTES + 1, 0)
    if length > MAX_RECORD_BYTES:
        return None
    data = file.read(length + _CHECKSUM_BYTES)
    return data[:length] if len(data) == length + _CHECKSUM_BYTES else None


def _scalar(value: Any) -> float | None:  # noqa: ANN401 - generated classes have no types
    kind, tensor = value.WhichOneof("value"), value.tensor
    if kind == "simple_value":
        return float(value.simple_value)
    if kind != "tensor" or tensor.dtype not in _FLOATS or math.prod(dim.size for dim in tensor.tensor_shape.dim) != 1:
        return None
    packed = _FLOATS[tensor.dtype]
    if len(tensor.tensor_content) == packed.size:
        return float(packed.unpack(tensor.tensor_content)[0])
    numbers = [*tensor.float_val, *tensor.double_val]
    return float(numbers[0]) if len(numbers) == 1 else None
