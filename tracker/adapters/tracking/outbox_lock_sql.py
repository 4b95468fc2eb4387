"""Lets one process at a time send from an outbox; the lock ends with the process that holds it, however it ends."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine

from tracker.adapters.database.lock_sql import named_lock


@contextmanager
def sender_lock(engine: Engine, run: str = "") -> Iterator[bool]:
    """Yield whether this caller may send the results of `run`; False, immediately, if another one is sending.

    Without it, two senders could both find no run or model in the store and create two.

    Raises:
        StoreError: the lock cannot be requested.
    """
    lock = named_lock(engine, f"sender {run}")
    try:
        yield lock.take()
    finally:
        lock.release()
