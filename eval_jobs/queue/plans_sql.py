"""The queue's table.

Times are stored as UTC text of fixed width, which is readable and sorts in the order of the times.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Dialect,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Row,
    String,
    Table,
    Text,
    TypeDecorator,
)

from eval_jobs.codec import plan_from_json, progress_from_json
from eval_jobs.queue.rules import FIRST_PLACE_OF_SWEEPS, PlanState
from eval_jobs.queue_types import Crash, Running, Waiting


class UtcText(TypeDecorator[datetime]):
    """A point in time as `2026-11-20T09:57:00.000000+00:00`."""

    impl = String(32)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:  # noqa: ARG002 - SQLAlchemy's
        """Return the time as UTC text."""
        if value is None:
            return None
        return value.astimezone(UTC).isoformat(timespec="microseconds")

    def process_result_value(self, value: str | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Return the time from its text."""
        if value is None:
            return None
        return datetime.fromisoformat(value)


METADATA = MetaData()
PLANS = Table(
    "eval_plans",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("run_id", Text, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),
    Column("plan", Text, nullable=False),
    Column("added_at", UtcText, nullable=False),
    # Order among the plans of the run; the lowest is next (`rules.place_of`).
    Column("place", BigInteger, nullable=False),
    Column("may_skip", Boolean, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("lost", Integer, nullable=False),
    Column("worker", Text, nullable=False),
    # Kept when the plan waits again: it shows which run had the last claim.
    Column("claimed_at", UtcText),
    Column("lease_until", UtcText),
    # Why it waits, for display.
    Column("note", Text, nullable=False),
    # While it runs: `codec.progress_to_json`.
    Column("progress", Text, nullable=False),
    # Answered samples: the maximum that any claim has reported, and its value when a worker was last lost.
    Column("answered", Integer, nullable=False),
    Column("answered_at_loss", Integer, nullable=False),
    # Consecutive crashes, with `FIELD` between the fields and `ENTRY` after each; number of consecutive lost workers.
    Column("crashes", Text, nullable=False),
    Column("stalled", Integer, nullable=False),
    Column("revived", Integer, nullable=False),
    Column("finished_at", UtcText),
    Column("record", LargeBinary),
    # Whether a benchmark failed; NULL until there is a record. The record itself is deleted when it is acknowledged.
    Column("failed", Boolean),
    Column("poisoned", Boolean, nullable=False),
    Index("eval_plans_in_turn", "state", "run_id", "place", "id"),
    Index("eval_plans_by_run", "run_id", "claimed_at"),
)
FIELD = "\x1f"
ENTRY = "\x1e"


def crashes_of(text: str) -> tuple[Crash, ...]:
    """Parse the column `crashes`."""
    found = (entry.split(FIELD) for entry in text.split(ENTRY) if entry)
    return tuple(
        Crash(worker=worker, progress=progress_from_json(progress), claimed_at=datetime.fromisoformat(at))
        for worker, progress, at in found
    )


def running_of(row: Row[str, str, str, datetime]) -> Running:
    """Return a running plan from its row."""
    progress = progress_from_json(row.progress)
    return Running(plan=plan_from_json(row.plan), worker=row.worker, progress=progress, since=row.claimed_at)


def waiting_of(row: Row[str, str, int, int, datetime, str]) -> Waiting:
    """Return a waiting plan from its row, for display."""
    return Waiting(
        plan_id=row.id,
        run_id=row.run_id,
        step=row.step,
        note=row.note,
        noted_at=row.claimed_at,
        is_sweep=row.place >= FIRST_PLACE_OF_SWEEPS,
    )


def unfinished_of(counted: Sequence[Row[str, str, int]]) -> dict[str, int]:
    """Return the number of waiting and running plans of each run."""
    numbers: dict[str, int] = {}
    for row in counted:
        if row.state in (PlanState.WAITING, PlanState.RUNNING):
            numbers[row.run_id] = numbers.get(row.run_id, 0) + row.plans
    return numbers
