"""The right to watch a run: a lock that ends with its process, and a row that names the leader."""

import os
import socket
from contextlib import ExitStack
from datetime import datetime

from sqlalchemy import Connection, Engine, select

from eval_jobs.errors import ConfigError
from eval_jobs.host.paths import canonical
from eval_jobs.queue.database_sql import put_row, transaction
from eval_jobs.queue.migrate_sql import bring_up_to_date
from eval_jobs.records.run_scope import is_of
from tracker.adapters.database.lock_sql import named_lock
from tracker.adapters.database.tables import LEADERS, TRACKER_TABLES
from tracker.domain.checkpoints.watching import Leader


class SqlLead:
    """`tracker.ports.Lead` of one run in the database behind `engine`."""

    def __init__(self, engine: Engine, run: str, output_dir: str) -> None:
        """Open the lead of `run`, whose trainer writes to `output_dir`.

        Raises:
            StoreError: the database cannot be reached or written, or is newer than this program.
        """
        self._engine = engine
        self._run = run
        self._output_dir = canonical(output_dir)
        self._lock = named_lock(engine, f"lead {run}")
        bring_up_to_date(engine, TRACKER_TABLES)

    def take(self, now: datetime) -> bool:
        """Take or confirm the lead; see `ports.Lead`."""
        if self._lock.is_held():
            return True
        if not self._lock.take():
            return False
        row = {
            "run_id": self._run,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "since": now,
            "output_dir": self._output_dir,
        }
        with ExitStack() as undo:
            undo.callback(self._lock.release)  # a leader must have a row
            if self._has_unaware_leader():
                return False
            with transaction(self._engine) as connection:
                self._demand_own_name(connection)
                put_row(connection, LEADERS, row)
            undo.pop_all()
        return True

    def leader(self) -> Leader | None:
        """Return the last leader; see `ports.Lead`."""
        with transaction(self._engine) as connection:
            row = connection.execute(select(LEADERS).where(LEADERS.c.run_id == self._run)).one_or_none()
        if row is None:
            return None
        return Leader(host=row.host, pid=row.pid, since=row.since, output_dir=row.output_dir)

    def is_led(self) -> bool:
        """Return whether a process leads; see `ports.Lead`."""
        return self._lock.is_taken() or self._has_unaware_leader()

    def release(self) -> None:
        """Release the lead; see `ports.Lead`."""
        self._lock.release()

    def _has_unaware_leader(self) -> bool:
        """Return whether the last leader still writes: it has yet to notice that its lock file was deleted."""
        leader = self.leader()
        if leader is None or leader.host != socket.gethostname():
            return False
        if leader.pid == os.getpid():
            return False
        return self._lock.is_lost_by(leader.pid)

    def _demand_own_name(self, connection: Connection) -> None:
        """Refuse a run whose name is a path prefix of another's, or vice versa: each would claim the other's plans."""
        others = sorted(set(connection.scalars(select(LEADERS.c.run_id))) - {self._run})
        other = next((name for name in others if is_of(name, self._run) or is_of(self._run, name)), None)
        if other is not None:
            raise ConfigError(
                f"runs {self._run} and {other} cannot share a database: one name is a path prefix of the other",
                hint="set another run.name, or a separate store.database",
            )
