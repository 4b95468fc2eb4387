"""Lets one process at a time send from an outbox; the lock ends with the process that holds it, however it ends."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine, func, select

from eval_jobs.errors import StoreError
from eval_jobs.queue.database_sql import mapped_errors

_POSTGRES_LOCK = 0x7472_6163_6B65_7200
"""Any number that nobody else uses in that database: "tracker" in ASCII."""


@contextmanager
def sender_lock(engine: Engine) -> Iterator[bool]:
    """Yield whether this caller may send; False at once when another one is sending.

    Without it, two senders could both find no run or model in the store and create two.

    Raises:
        StoreError: the lock file cannot be written.
    """
    if engine.dialect.name == "postgresql":
        with _advisory_lock(engine) as mine:
            yield mine
    elif engine.url.database in (None, "", ":memory:"):
        yield True  # nobody else can open it
    else:
        with _file_lock(Path(f"{engine.url.database}.sender")) as mine:
            yield mine


# --- private


@contextmanager
def _file_lock(path: Path) -> Iterator[bool]:
    try:
        file = path.open("a")
    except OSError as error:
        raise StoreError(f"the lock {path} cannot be written: {error.strerror}", hint="check the folder") from error
    with file:  # closing it releases the lock
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


@contextmanager
def _advisory_lock(engine: Engine) -> Iterator[bool]:
    with mapped_errors(engine):
        connection = engine.connect()
    # A lock of the session, which PostgreSQL gives back when the connection ends.
    with connection.execution_options(isolation_level="AUTOCOMMIT") as session:
        mine = bool(session.scalar(select(func.pg_try_advisory_lock(_POSTGRES_LOCK))))
        try:
            yield mine
        finally:
            if mine:
                session.scalar(select(func.pg_advisory_unlock(_POSTGRES_LOCK)))
