"""Classifies errors of the file system. Only this module decides whether the disk is full."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eval_jobs.errors import DiskFull, StoreError

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""No space left, quota exceeded, or maximum file size reached."""


def is_full(error: OSError) -> bool:
    """Return whether the error is one of `NO_SPACE`."""
    return error.errno in NO_SPACE


def is_storage_error(error: Exception) -> bool:
    """Return whether the error comes from the operating system and concerns files, not connections."""
    return isinstance(error, OSError) and not isinstance(error, ConnectionError | TimeoutError)


def storage_error(folder: Path, error: OSError) -> StoreError:
    """Return the error for a folder of the tracker that cannot be written."""
    return write_error(error, f"cannot write to {folder}", hint="check the folder's permissions and its disk")


@contextmanager
def mapped_storage_errors(folder: Path) -> Iterator[None]:
    """Convert an OSError about files of the tracker in `folder` into DiskFull or StoreError."""
    try:
        yield
    except OSError as error:
        raise storage_error(folder, error) from error


def write_error(error: OSError, what: str, *, hint: str) -> StoreError:
    """Return the error for a failed file operation.

    `what`: the failed operation and its file; `hint` applies unless the disk is full.
    """
    text = f"{what}: {error.strerror or error}"
    if is_full(error):
        return DiskFull(text, hint="free disk space; completed work is kept")
    return StoreError(text, hint=hint)
