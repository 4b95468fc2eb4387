"""The queue in one SQL table, for any number of workers: SQLite on one machine, PostgreSQL across machines.

Every change is one UPDATE whose WHERE clause repeats what must still be true, so two processes can never both win.
Times are stored as UTC text of fixed width: readable by a person, and ordered as the times are.
"""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import (
    Boolean,
    Column,
    ColumnElement,
    Dialect,
    Engine,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Row,
    String,
    Table,
    Text,
    TypeDecorator,
    and_,
    case,
    func,
    or_,
    select,
    update,
)

from eval_jobs.codec import plan_from_json, plan_to_json, record_from_bytes, record_to_bytes
from eval_jobs.queue.database_sql import insert_into, transaction
from eval_jobs.queue.migrate_sql import QUEUE_TABLES, bring_up_to_date
from eval_jobs.queue.rules import PlanState
from eval_jobs.types import BenchmarkFailure, Claim, EvalPlan, EvalRecord, QueueState, Running

MAX_NOTE_CHARS = 200


class UtcText(TypeDecorator[datetime]):
    """A point in time as `2026-11-20T09:57:00.000000+00:00`."""

    impl = String(32)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:  # noqa: ARG002 - SQLAlchemy's
        """Write the time in UTC."""
        return None if value is None else value.astimezone(UTC).isoformat(timespec="microseconds")

    def process_result_value(self, value: str | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Read it back."""
        return None if value is None else datetime.fromisoformat(value)


METADATA = MetaData()
PLANS = Table(
    "eval_plans",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("run_id", Text, nullable=False),
    Column("step", Integer, nullable=False),
    Column("state", String(16), nullable=False),
    Column("plan", Text, nullable=False),
    Column("added_at", UtcText, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("lost", Integer, nullable=False),
    Column("worker", Text, nullable=False),
    Column("claimed_at", UtcText),
    Column("lease_until", UtcText),
    Column("note", Text, nullable=False),
    Column("finished_at", UtcText),
    Column("record", LargeBinary),
    # Whether a benchmark failed; NULL until there is a record. The record itself leaves when it is acknowledged.
    Column("failed", Boolean),
    Index("eval_plans_by_state", "state", "step"),
)


_UNCLAIMED = {"state": PlanState.WAITING, "worker": "", "note": "", "lease_until": None, "claimed_at": None}
"""What every waiting plan has."""


class SqlQueue:
    """`eval_jobs.ports.Queue` in the database behind `engine`; its table is brought up to date."""

    def __init__(self, engine: Engine) -> None:
        """Open the queue.

        Raises:
            StoreError: the database cannot be reached or written, or is newer than this program.
        """
        self._engine = engine
        bring_up_to_date(engine, QUEUE_TABLES)

    def add(self, plan: EvalPlan, *, now: datetime) -> bool:
        """Add a plan; see `ports.Queue`."""
        row = {
            "id": plan.id,
            "run_id": plan.checkpoint.run_id,
            "step": plan.checkpoint.step,
            "state": PlanState.WAITING,
            "plan": plan_to_json(plan),
            "added_at": now,
            "attempt": 0,
            "lost": 0,
            "worker": "",
            "note": "",
        }
        with transaction(self._engine) as connection:
            # The row that comes back is the proof; drivers do not count inserted rows alike.
            insert = insert_into(connection, PLANS).values(row).on_conflict_do_nothing()
            if connection.execute(insert.returning(PLANS.c.id)).first() is not None:
                return True
            waits = (PLANS.c.id == plan.id) & (PLANS.c.state == PlanState.WAITING)
            connection.execute(update(PLANS).where(waits).values(plan=row["plan"]))
        return False

    def claim(self, *, worker: str, now: datetime, lease_until: datetime) -> Claim | None:
        """Take the next plan; see `ports.Queue`."""
        next_id = (
            select(PLANS.c.id)
            .where(_claimable(now))
            .order_by(PLANS.c.step, PLANS.c.run_id, PLANS.c.id)
            .limit(1)
            # PostgreSQL: two workers that ask at once get two plans. SQLite has one writer and renders nothing here.
            .with_for_update(skip_locked=True)
            .scalar_subquery()
        )
        take = (
            update(PLANS)
            .where(PLANS.c.id == next_id, _claimable(now))
            .values(
                # SQL reads the old row: a plan that still "runs" here was left behind by its worker.
                lost=case((PLANS.c.state == PlanState.RUNNING, PLANS.c.lost + 1), else_=PLANS.c.lost),
                state=PlanState.RUNNING,
                worker=worker,
                attempt=PLANS.c.attempt + 1,
                claimed_at=now,
                lease_until=lease_until,
                note="",
            )
            .returning(PLANS.c.plan, PLANS.c.attempt, PLANS.c.lost)
        )
        with transaction(self._engine) as connection:
            row = connection.execute(take).one_or_none()
            if row is None:
                return None
            plan = plan_from_json(row.plan)
        return Claim(plan=plan, worker=worker, attempt=row.attempt, lost=row.lost, lease_until=lease_until)

    def extend(self, claim: Claim, *, now: datetime, lease_until: datetime, note: str) -> bool:  # noqa: ARG002 - port
        """Move the lease and leave a note; see `ports.Queue`."""
        return self._change_held(claim, lease_until=lease_until, note=note[:MAX_NOTE_CHARS])

    def finish(self, claim: Claim, record: EvalRecord, *, now: datetime) -> bool:
        """Store the outcome; see `ports.Queue`."""
        failed = any(isinstance(outcome, BenchmarkFailure) for outcome in record.outcomes)
        return self._change_held(
            claim, state=PlanState.FINISHED, record=record_to_bytes(record), failed=failed, finished_at=now
        )

    def release(self, claim: Claim, *, now: datetime, counts: bool = True) -> None:  # noqa: ARG002 - part of the port
        """Give a plan back; see `ports.Queue`."""
        attempt = claim.attempt if counts else claim.attempt - 1
        self._change_held(claim, attempt=attempt, **_UNCLAIMED)

    def finished(self) -> tuple[EvalRecord, ...]:
        """Return what nobody has taken over yet; see `ports.Queue`."""
        query = select(PLANS.c.record).where(PLANS.c.state == PlanState.FINISHED).order_by(PLANS.c.step, PLANS.c.id)
        with transaction(self._engine) as connection:
            blobs = connection.scalars(query).all()
        return tuple(record_from_bytes(blob) for blob in blobs if blob is not None)

    def acknowledge(self, plan_id: str) -> None:
        """Mark a finished plan as taken over; see `ports.Queue`."""
        # The record now lives in the history; keeping it here too would double the database.
        take_over = (
            update(PLANS)
            .where(PLANS.c.id == plan_id, PLANS.c.state == PlanState.FINISHED)
            .values(state=PlanState.ACKNOWLEDGED, record=None)
        )
        with transaction(self._engine) as connection:
            connection.execute(take_over)

    def revive(self, *, now: datetime) -> int:  # noqa: ARG002 - part of the port
        """Let failed plans wait again; see `ports.Queue`."""
        again = (
            update(PLANS)
            .where(PLANS.c.state == PlanState.ACKNOWLEDGED, PLANS.c.failed.is_(True))
            .values(_UNCLAIMED | {"attempt": 0, "lost": 0, "failed": None, "finished_at": None})
        )
        with transaction(self._engine) as connection:
            return connection.execute(again).rowcount

    def state(self) -> QueueState:
        """Return what waits and runs now; see `ports.Queue`."""
        columns = (PLANS.c.state, PLANS.c.plan, PLANS.c.worker, PLANS.c.note, PLANS.c.claimed_at)
        unfinished = (
            select(*columns)
            .where(PLANS.c.state.in_([PlanState.WAITING, PlanState.RUNNING]))
            .order_by(PLANS.c.step, PLANS.c.run_id, PLANS.c.id)
        )
        with transaction(self._engine) as connection:
            rows = connection.execute(unfinished).all()
            counted = connection.execute(select(PLANS.c.state, func.count()).group_by(PLANS.c.state)).all()
        return QueueState(
            waiting=tuple(plan_from_json(row.plan) for row in rows if row.state == PlanState.WAITING),
            running=tuple(_running(row) for row in rows if row.state == PlanState.RUNNING),
            counts={str(state): 0 for state in PlanState} | {row.state: row[1] for row in counted},
        )

    # --- private

    def _change_held(self, claim: Claim, **values: object) -> bool:
        """Change the plan if it is still held under this very claim."""
        change = (
            update(PLANS)
            .where(
                PLANS.c.id == claim.plan.id,
                PLANS.c.state == PlanState.RUNNING,
                PLANS.c.worker == claim.worker,
                PLANS.c.attempt == claim.attempt,
            )
            .values(values)
        )
        with transaction(self._engine) as connection:
            return connection.execute(change).rowcount == 1


def _claimable(now: datetime) -> ColumnElement[bool]:
    """A plan may be taken when it waits, or when its worker let the lease run out."""
    return or_(
        PLANS.c.state == PlanState.WAITING,
        and_(PLANS.c.state == PlanState.RUNNING, PLANS.c.lease_until <= now),
    )


def _running(row: Row[str, str, str, str, datetime]) -> Running:
    return Running(plan=plan_from_json(row.plan), worker=row.worker, note=row.note, since=row.claimed_at)
