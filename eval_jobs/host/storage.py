"""What it means when the evaluator's own folder cannot be written."""

from __future__ import annotations

import errno
from pathlib import Path

from eval_jobs.errors import DiskFull, StoreError


def is_full(error: OSError) -> bool:
    """Tell whether space or quota ran out."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def is_storage_error(error: Exception) -> bool:
    """Tell whether the operating system refused something about files, and not about connections."""
    return isinstance(error, OSError) and not isinstance(error, ConnectionError | TimeoutError)


def storage_error(folder: Path, error: OSError) -> StoreError:
    """Return the error for a folder of ours that cannot be written."""
    if is_full(error):
        return DiskFull(f"no space left in {folder}", hint="free some space; what was answered is kept")
    return StoreError(f"{folder} cannot be written: {error.strerror}", hint="check the folder's permissions and disk")
