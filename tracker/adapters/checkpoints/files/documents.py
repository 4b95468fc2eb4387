"""Reads JSON documents of checkpoints, and says why one cannot be read."""

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from eval_jobs import limits
from eval_jobs.errors import CheckpointIncomplete, CheckpointUnreadable
from eval_jobs.host.bounded.files import open_regular, read_bytes
from eval_jobs.host.bounded.json_text import TooLarge, parse_json
from tracker.domain.checkpoints import listing

Content = TypeVar("Content")


def read_document(path: Path) -> listing.Document | listing.Broken:
    """Return the JSON object in a file, or why there is none."""
    return read_or_broken(path, _document)


def parse_document(content: bytes) -> listing.Document | listing.Broken:
    """Return the JSON object in `content`, or why there is none."""
    try:
        document = parse_json(content)
    except TooLarge as error:
        return listing.Broken(code=CheckpointUnreadable.code, text=str(error))
    except ValueError as error:
        return listing.Broken(code=CheckpointUnreadable.code, text=f"is not valid JSON: {error}")
    if not isinstance(document, dict):
        return listing.Broken(code=CheckpointUnreadable.code, text="is not a JSON object")
    return document


_STATED = re.compile(rb'^ {0,2}"(global_step|max_steps|save_steps)": *([0-9]{1,15}),?$', re.MULTILINE)
"""Of a trainer state, as transformers writes it: sorted by name, with `log_history` in between."""
_ENDS_BYTES = 64 << 10


def _document(path: Path) -> listing.Document | listing.Broken:
    try:
        return parse_document(read_bytes(path, limits.DOCUMENT))
    except TooLarge as error:
        if path.name == listing.TRAINER_STATE:  # its log grows with the training, and only two numbers are needed
            return _ends_of_state(path)
        return listing.Broken(code=CheckpointUnreadable.code, text=str(error))


def _ends_of_state(path: Path) -> listing.Document | listing.Broken:
    """Return the numbers at the beginning and the end of a trainer state that is too large to be parsed."""
    with open_regular(path) as file:
        ends = file.read(_ENDS_BYTES)
        file.seek(-_ENDS_BYTES, os.SEEK_END)
        ends += file.read(_ENDS_BYTES)
    if not ends.rstrip().endswith(b"}"):
        return listing.Broken(code=CheckpointUnreadable.code, text="is not valid JSON: it has no end")
    return {name.decode(): int(number) for name, number in _STATED.findall(ends)}


_AWAY = {
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.EIO,
    errno.ENODEV,
    errno.ENOTCONN,
    errno.EREMOTEIO,
    errno.ESTALE,
    errno.ETIMEDOUT,
}
"""Errors of an unavailable file server or a failing disk: the file may still exist."""


def demand_present(error: OSError) -> None:
    """Raise `error` again if the file may still exist."""
    if error.errno in _AWAY:
        raise error


def read_or_broken(path: Path, read: Callable[[Path], Content | listing.Broken]) -> Content | listing.Broken:
    """Return what `read` returns; a file that can no longer be read is broken, unless it may still exist."""
    try:
        return read(path)
    except OSError as error:
        demand_present(error)
        return listing.Broken(code=CheckpointIncomplete.code, text=f"cannot be read: {error.strerror}")
