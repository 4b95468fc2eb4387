"""What it means when the disk refuses: the one place that decides whether it is full."""

import errno
from pathlib import Path

from eval_jobs.errors import DiskFull, StoreError

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Space, quota or the largest size of a file ran out."""


def is_full(error: OSError) -> bool:
    """Tell whether space or quota ran out."""
    return error.errno in NO_SPACE


def is_storage_error(error: Exception) -> bool:
    """Tell whether the operating system refused something about files, and not about connections."""
    return isinstance(error, OSError) and not isinstance(error, ConnectionError | TimeoutError)


def storage_error(folder: Path, error: OSError) -> StoreError:
    """Return the error for a folder of ours that cannot be written."""
    return write_error(error, f"cannot write to {folder}", hint="check the folder's permissions and its disk")


def write_error(error: OSError, what: str, *, hint: str) -> StoreError:
    """Return the error for a file that the disk refused.

    Args:
        error: what the operating system said.
        what: which file, and what was to be done with it.
        hint: what to do unless the disk is full.
    """
    text = f"{what}: {error.strerror or error}"
    if is_full(error):
        return DiskFull(text, hint="free disk space; completed work is kept")
    return StoreError(text, hint=hint)
