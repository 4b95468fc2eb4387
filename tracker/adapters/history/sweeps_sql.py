"""Sweep runs and their results in the tracker's database."""

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import sqlalchemy as sa

from eval_jobs.codec import record_from_bytes, record_to_bytes
from eval_jobs.queue.database_sql import IDS_AT_ONCE, add_row, put_row, transaction
from eval_jobs.queue.migrate_sql import bring_up_to_date
from eval_jobs.types import EvalRecord
from tracker.adapters.database.codec import to_json
from tracker.adapters.database.damaged_sql import DamagedRows
from tracker.adapters.database.tables import LEASES, LOOKS, RESULTS, TRACKER_TABLES, TURNS
from tracker.domain.sweeps.types import OPEN, TimetablePosition, Turn, TurnState

Document = TypeVar("Document")

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class SqlSweeps:
    """`tracker.ports.Sweeps` of one run in the database behind `engine`."""

    def __init__(self, engine: sa.Engine, run: str) -> None:
        """Open the sweeps of `run` and migrate their tables.

        Raises:
            StoreError: the database cannot be reached or written, or is newer than this program.
        """
        self._engine = engine
        self._run = run
        self._read: dict[tuple[str, datetime, str], Turn] = {}
        """Open sweep runs by sweep, due time and state: a sweep run changes only with its state."""
        self._damaged = DamagedRows()
        bring_up_to_date(engine, TRACKER_TABLES)

    def take(self, holder: str, *, now: datetime, lease_until: datetime) -> bool:
        """Take or prolong the lease for starting sweep runs; see `ports.Sweeps`."""
        row = {"run_id": self._run, "holder": "", "lease_until": _LONG_AGO}
        free = sa.or_(LEASES.c.holder == holder, LEASES.c.lease_until <= now, LEASES.c.lease_until > lease_until)
        taken = sa.update(LEASES).where(LEASES.c.run_id == self._run, free)
        with transaction(self._engine) as connection:
            add_row(connection, LEASES, row)
            return connection.execute(taken.values(holder=holder, lease_until=lease_until)).rowcount == 1

    def release(self, holder: str) -> None:
        """Release the lease; see `ports.Sweeps`."""
        own = sa.update(LEASES).where(LEASES.c.run_id == self._run, LEASES.c.holder == holder)
        with transaction(self._engine) as connection:
            connection.execute(own.values(holder="", lease_until=_LONG_AGO))

    def look(self, sweep: str) -> TimetablePosition | None:
        """Return until when a timetable was processed; see `ports.Sweeps`."""
        query = sa.select(LOOKS).where(LOOKS.c.run_id == self._run, LOOKS.c.sweep == sweep)
        with transaction(self._engine) as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            return None
        return TimetablePosition(until=row.until, timetable=row.timetable)

    def remember(self, sweep: str, look: TimetablePosition) -> None:
        """Store until when a timetable was processed; see `ports.Sweeps`."""
        row = {"run_id": self._run, "sweep": sweep, "until": look.until, "timetable": look.timetable}
        with transaction(self._engine) as connection:
            put_row(connection, LOOKS, row)

    def add(self, turn: Turn) -> bool:
        """Store a new sweep run; see `ports.Sweeps`."""
        row = {"run_id": self._run, "sweep": turn.sweep, "due_at": turn.due_at, **_state_of(turn)}
        with transaction(self._engine) as connection:
            return add_row(connection, TURNS, row)

    def change(self, turn: Turn, *, was: TurnState) -> bool:
        """Store the new state of a sweep run; see `ports.Sweeps`."""
        key = (TURNS.c.run_id == self._run, TURNS.c.sweep == turn.sweep, TURNS.c.due_at == turn.due_at)
        with transaction(self._engine) as connection:
            changed = sa.update(TURNS).where(*key, TURNS.c.state == was).values(_state_of(turn))
            return connection.execute(changed).rowcount == 1

    def open_turns(self) -> tuple[Turn, ...]:
        """Return the due and running sweep runs; see `ports.Sweeps`."""
        key = (TURNS.c.sweep, TURNS.c.due_at, TURNS.c.state)
        query = sa.select(*key).where(TURNS.c.run_id == self._run, TURNS.c.state.in_(OPEN))
        with transaction(self._engine) as connection:
            rows = connection.execute(query.order_by(TURNS.c.due_at, TURNS.c.sweep)).all()
            # Plans of hundreds of evaluations are read once, not at every pass.
            self._read = {k: turn for row in rows if (turn := self._read.get(k := (row.sweep, row.due_at, row.state)))}
            if len(self._read) < len(rows):
                whole = self._damaged.documents(connection, query.with_only_columns(TURNS.c.turn), Turn, TURNS)
                self._read = {(t.sweep, t.due_at, str(t.state)): t for t in whole}
        return tuple(sorted(self._read.values(), key=lambda t: (t.due_at, t.sweep)))

    def turns(self, sweep: str) -> tuple[Turn, ...]:
        """Return all runs of a sweep; see `ports.Sweeps`."""
        query = sa.select(TURNS.c.turn).where(TURNS.c.run_id == self._run, TURNS.c.sweep == sweep)
        with transaction(self._engine) as connection:
            return tuple(self._damaged.documents(connection, query.order_by(TURNS.c.due_at.desc()), Turn, TURNS))

    def append(self, record: EvalRecord) -> None:
        """Store a result; see `ports.Sweeps`."""
        row = {"plan_id": record.plan.id, "finished_at": record.finished_at, "record": record_to_bytes(record)}
        with transaction(self._engine) as connection:
            put_row(connection, RESULTS, row)

    def answered(self, plan_ids: Collection[str]) -> frozenset[str]:
        """Return which plans have a result; see `ports.Sweeps`."""
        return frozenset(self._of(sa.select(RESULTS.c.plan_id), plan_ids, lambda row: str(row[0])))

    def results(self, plan_ids: Collection[str]) -> Mapping[str, EvalRecord]:
        """Return the results of plans; see `ports.Sweeps`."""
        records = self._of(sa.select(RESULTS.c.record), plan_ids, lambda row: record_from_bytes(row[0]))
        return {record.plan.id: record for record in records}

    def _of(
        self, query: sa.Select[Any], plan_ids: Collection[str], read: Callable[[sa.Row[Any]], Document]
    ) -> list[Document]:
        ids = sorted(plan_ids)
        found: list[Document] = []
        with transaction(self._engine) as connection:
            for start in range(0, len(ids), IDS_AT_ONCE):
                some = query.where(RESULTS.c.plan_id.in_(ids[start : start + IDS_AT_ONCE]))
                found += self._damaged.readable(connection, some, read, RESULTS)
        return found


def _state_of(turn: Turn) -> dict[str, str]:
    return {"state": str(turn.state), "turn": to_json(turn)}
