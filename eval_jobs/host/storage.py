"""Writes files that users name, and classifies errors of the file system. Only this module decides whether it is full.

with written(output, hint="choose another file") as file:      # a file, link, pipe or /dev/stdout
    file.write(page)
"""

import errno
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

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


@contextmanager
def written(path: Path, *, hint: str, makes_folder: bool = False) -> Iterator[BinaryIO]:
    """Open a file that a user named. A regular file appears or is replaced at the end, and is unchanged on failure.

    A replaced file keeps its permissions. The file that a link leads to is replaced, and the link stays. Pipes and
    devices without content of their own (terminals, /dev/null, /dev/stdout) are written to.

    Raises:
        DiskFull, StoreError: it cannot be written; `hint` applies unless the disk is full.
    """
    try:
        if makes_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        with _opened(path) as file:
            yield file
    except BrokenPipeError:  # its reader wants no more
        raise
    except OSError as error:
        raise write_error(error, f"cannot write {path}", hint=hint) from error


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    facts = None
    with suppress(FileNotFoundError):
        facts = path.stat()
    target = _end_of_links(path)
    if os.path.realpath(target.parent) == f"/proc/{os.getpid()}/fd":
        sys.stdout.flush()
        file: BinaryIO = os.fdopen(os.dup(int(target.name)), "wb")
    elif facts is None or stat.S_ISREG(facts.st_mode):
        with _replacing(target, facts) as file:
            yield file
        return
    else:
        file = _device(path, facts)
    with file:
        yield file


@contextmanager
def _replacing(target: Path, facts: os.stat_result | None) -> Iterator[BinaryIO]:
    if facts is not None and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    draft = target.with_name(f".{secrets.token_hex(8)}.draft")  # no link can wait at an unknown name
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if facts is not None:
                with suppress(PermissionError):
                    os.fchown(descriptor, facts.st_uid, facts.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(facts.st_mode))
            yield file
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def _end_of_links(path: Path) -> Path:
    """Return the file that links lead to. The link of an open file, to which /dev/stdout leads, is not followed."""
    while path.is_symlink() and not os.path.realpath(path.parent).startswith("/proc/"):
        path = path.parent / path.readlink()
    return path


def _device(path: Path, facts: os.stat_result) -> BinaryIO:
    if stat.S_ISFIFO(facts.st_mode) or stat.S_ISCHR(facts.st_mode):
        return path.open("wb")
    if stat.S_ISDIR(facts.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise OSError(errno.EINVAL, "it is a socket or a disk")
