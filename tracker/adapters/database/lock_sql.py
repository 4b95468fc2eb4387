"""Locks that one process at a time holds, and that end with it, however it ends.

With SQLite it is a kernel lock on a file next to the database, in PostgreSQL a session lock on a separate connection.
"""

import hashlib
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Protocol

import psutil
from sqlalchemy import Connection, Engine, func, literal, select, text
from sqlalchemy.exc import DBAPIError

from eval_jobs.errors import StoreError
from eval_jobs.host.plan_lock import is_in_place, is_locked, locked_file
from eval_jobs.host.storage import write_error
from eval_jobs.queue.database_sql import mapped_database_errors

log = logging.getLogger(__name__)

_NOTICE_A_LOST_HOLDER = (
    # The server releases a lock when its session ends; only keepalives detect a machine that lost power.
    text("SET tcp_keepalives_idle = 10"),
    text("SET tcp_keepalives_interval = 5"),
    text("SET tcp_keepalives_count = 2"),
)


class Lock(Protocol):
    """A named lock."""

    def is_held(self) -> bool:
        """Return whether this object holds the lock now; a lost connection or deleted file has released it."""

    def take(self) -> bool:
        """Take the lock and return True; return False immediately if another process holds it.

        Raises:
            StoreError: it cannot be requested.
        """

    def is_taken(self) -> bool:
        """Return whether any process holds the lock now, without requesting it.

        Raises:
            StoreError: this cannot be determined.
        """

    def release(self) -> None:
        """Release the lock, if it is held."""

    def is_lost_by(self, pid: int) -> bool:
        """Return whether a process of this machine held the lock and has not yet noticed its loss, if that is known."""
        del pid
        return False


def named_lock(engine: Engine, name: str) -> Lock:
    """Return the lock called `name`, shared by all users of this database."""
    if engine.dialect.name == "postgresql":
        return _SessionLock(engine, name)
    if engine.url.database in (None, "", ":memory:"):
        return _OwnLock()  # no other process can open it
    return _FileLock(Path(f"{engine.url.database}.{_digest(name).hex()[:16]}.lock"))


@contextmanager
def lock_if_free(engine: Engine, name: str) -> Iterator[bool]:
    """Hold the lock called `name` in this context, and yield True; yield False if another process holds it.

    Raises:
        StoreError: the lock cannot be requested.
    """
    lock = named_lock(engine, name)
    try:
        yield lock.take()
    finally:
        lock.release()


def _digest(name: str) -> bytes:
    return hashlib.sha256(f"checkpoint-tracker {name}".encode()).digest()


class _OwnLock(Lock):
    def is_held(self) -> bool:
        return True

    def take(self) -> bool:
        return True

    def is_taken(self) -> bool:
        return False

    def release(self) -> None:
        pass


class _FileLock(Lock):
    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None

    def is_held(self) -> bool:
        if self._file is None:
            return False
        if is_in_place(self._path, self._file):
            return True
        log.warning("the lock file %s was deleted: requesting the lock again; keep these files", self._path)
        self.release()
        return False

    def take(self) -> bool:
        if self.is_held():
            return True
        try:
            self._file = locked_file(self._path)
        except OSError as error:
            raise write_error(
                error, f"cannot write the lock file {self._path}", hint="check the permissions of its folder"
            ) from error
        return self._file is not None

    def is_taken(self) -> bool:
        try:
            return is_locked(self._path)
        except OSError as error:
            raise StoreError(
                f"cannot read the lock file {self._path}: {error}", hint="check its permissions"
            ) from error

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def is_lost_by(self, pid: int) -> bool:
        try:  # a process has the file open only as long as it holds the lock
            return str(self._path.resolve()) in {file.path for file in psutil.Process(pid).open_files()}
        except psutil.Error:
            return False


class _SessionLock(Lock):
    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self._key = int.from_bytes(_digest(name)[:8], signed=True)
        self._session: Connection | None = None

    def is_held(self) -> bool:
        if self._session is None:
            return False
        try:
            self._session.scalar(select(literal(1)))
        except DBAPIError:
            self._session.invalidate()
            self._session.close()
            self._session = None
            return False
        return True

    def take(self) -> bool:
        if self.is_held():
            return True
        with mapped_database_errors(self._engine), ExitStack() as undo:
            session = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            undo.callback(session.close)
            for setting in _NOTICE_A_LOST_HOLDER:
                session.execute(setting)
            mine = session.scalar(select(func.pg_try_advisory_lock(self._key)))
            if mine:
                undo.pop_all()
                self._session = session
        return bool(mine)

    def is_taken(self) -> bool:
        # PostgreSQL shows the two halves of a key of 64 bits.
        query = text(
            "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database "
            "WHERE datname = current_database() AND locktype = 'advisory' AND granted AND objsubid = 1 "
            "AND classid = :high AND objid = :low"
        )
        high, low = divmod(self._key % 2**64, 2**32)
        with mapped_database_errors(self._engine), self._engine.connect() as connection:
            return bool(connection.scalar(query, {"high": high, "low": low}))

    def release(self) -> None:
        if self._session is None:
            return
        try:
            # Explicitly, not only by closing: the server may notice the end of a connection later.
            self._session.scalar(select(func.pg_advisory_unlock(self._key)))
        except DBAPIError:
            self._session.invalidate()
        self._session.close()
        self._session = None
