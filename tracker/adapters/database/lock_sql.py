"""Locks that one process at a time holds, and that end with it, however it ends.

    lock = named_lock(engine, "lead:run-a")
    lock.take()     # True: it is ours until `release`, the end of this process, or the end of its session

Beside a SQLite file it is a lock of the kernel on a file, in PostgreSQL one of a session on a connection of its own.
"""

import fcntl
import hashlib
from io import TextIOWrapper
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection, Engine, func, literal, select, text
from sqlalchemy.exc import DBAPIError

from eval_jobs.host.storage import write_error
from eval_jobs.queue.database_sql import mapped_database_errors

_NOTICE_A_LOST_HOLDER = (
    # The server gives a lock back when its session ends; of a machine that lost its power it hears nothing.
    text("SET tcp_keepalives_idle = 10"),
    text("SET tcp_keepalives_interval = 5"),
    text("SET tcp_keepalives_count = 2"),
)


class Lock(Protocol):
    """One lock of one name."""

    def is_held(self) -> bool:
        """Say whether this object holds the lock at this moment; one that was cut off holds it no more."""

    def take(self) -> bool:
        """Take the lock and return True; False at once when another one holds it.

        Raises:
            StoreError: it cannot be asked for.
        """

    def release(self) -> None:
        """Give the lock back; nothing when it is not held."""


def named_lock(engine: Engine, name: str) -> Lock:
    """Return the lock called `name` among those who use this database."""
    if engine.dialect.name == "postgresql":
        return _SessionLock(engine, name)
    if engine.url.database in (None, "", ":memory:"):
        return _OwnLock()  # nobody else can open it
    return _FileLock(Path(f"{engine.url.database}.{_digest(name).hex()[:16]}.lock"))


# --- private


def _digest(name: str) -> bytes:
    return hashlib.sha256(f"checkpoint-tracker {name}".encode()).digest()


class _OwnLock:
    def is_held(self) -> bool:
        return True

    def take(self) -> bool:
        return True

    def release(self) -> None:
        pass


class _FileLock:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIOWrapper | None = None

    def is_held(self) -> bool:
        return self._file is not None

    def take(self) -> bool:
        if self._file is not None:
            return True
        try:
            file = self._path.open("a", encoding="utf-8")
        except OSError as error:
            raise write_error(
                error, f"cannot write the lock file {self._path}", hint="check the permissions of its folder"
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        self._file = file
        return True

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class _SessionLock:
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
            self._forget_cut_session()
            return False
        return True

    def take(self) -> bool:
        if self.is_held():
            return True
        with mapped_database_errors(self._engine):
            session = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            try:
                for setting in _NOTICE_A_LOST_HOLDER:
                    session.execute(setting)
                mine = session.scalar(select(func.pg_try_advisory_lock(self._key)))
            except BaseException:
                session.close()
                raise
        if mine:
            self._session = session
        else:
            session.close()
        return bool(mine)

    def release(self) -> None:
        if self._session is None:
            return
        try:
            # Said, not only cut: the server may notice the end of a connection a moment later.
            self._session.scalar(select(func.pg_advisory_unlock(self._key)))
        except DBAPIError:
            self._session.invalidate()
        self._session.close()
        self._session = None

    def _forget_cut_session(self) -> None:
        if self._session is not None:
            self._session.invalidate()
            self._session.close()
            self._session = None
