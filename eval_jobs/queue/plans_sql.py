"""The queue's table, and the changes of the whole database.

Times are stored as UTC text of fixed width, which is readable and sorts in the order of the times.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

import sqlalchemy as sa

from eval_jobs.codec import plan_from_json, progress_from_json
from eval_jobs.queue.rules import FIRST_PLACE_OF_SWEEPS, PlanState
from eval_jobs.queue_types import Crash, Running, Waiting


class UtcText(sa.TypeDecorator[datetime]):
    """A point in time as `2026-11-20T09:57:00.000000+00:00`."""

    impl = sa.String(32)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> str | None:  # noqa: ARG002 - SQLAlchemy's
        """Return the time as UTC text."""
        if value is None:
            return None
        return value.astimezone(UTC).isoformat(timespec="microseconds")

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> datetime | None:  # noqa: ARG002
        """Return the time from its text."""
        if value is None:
            return None
        return datetime.fromisoformat(value)


METADATA = sa.MetaData()
PLANS = sa.Table(
    "eval_plans",
    METADATA,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("run_id", sa.Text, nullable=False),
    sa.Column("step", sa.BigInteger, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("plan", sa.Text, nullable=False),
    sa.Column("added_at", UtcText, nullable=False),
    # Order among the plans of the run; the lowest is next (`rules.place_of`).
    sa.Column("place", sa.BigInteger, nullable=False),
    sa.Column("may_skip", sa.Boolean, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("lost", sa.Integer, nullable=False),
    sa.Column("worker", sa.Text, nullable=False),
    # Kept when the plan waits again: it shows which run had the last claim.
    sa.Column("claimed_at", UtcText),
    sa.Column("lease_until", UtcText),
    # Why it waits, for display.
    sa.Column("note", sa.Text, nullable=False),
    # While it runs: `codec.progress_to_json`.
    sa.Column("progress", sa.Text, nullable=False),
    # Answered samples: the maximum that any claim has reported, and its value when a worker was last lost.
    sa.Column("answered", sa.Integer, nullable=False),
    sa.Column("answered_at_loss", sa.Integer, nullable=False),
    # Consecutive crashes, with `FIELD` between the fields and `ENTRY` after each; number of consecutive lost workers.
    sa.Column("crashes", sa.Text, nullable=False),
    sa.Column("stalled", sa.Integer, nullable=False),
    sa.Column("revived", sa.Integer, nullable=False),
    sa.Column("finished_at", UtcText),
    sa.Column("record", sa.LargeBinary),
    # Whether a benchmark failed; NULL until there is a record. The record itself is deleted when it is acknowledged.
    sa.Column("failed", sa.Boolean),
    sa.Column("poisoned", sa.Boolean, nullable=False),
    sa.Index("eval_plans_in_turn", "state", "run_id", "place", "id"),
    sa.Index("eval_plans_by_run", "run_id", "claimed_at"),
)
CHANGES = sa.Table(
    "changes",
    METADATA,
    sa.Column("kind", sa.String(16), primary_key=True),
    sa.Column("key", sa.String(64), primary_key=True),
    sa.Column("run_id", sa.Text, nullable=False),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Index("changes_by_number", "number"),
)
"""The newest change of each thing. What never changed since the table exists has no row."""
COUNTERS = sa.Table(
    "change_counters",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("number", sa.BigInteger, nullable=False),
)
"""The newest number in SQLite, which has none for its transactions."""
FIELD = "\x1f"
ENTRY = "\x1e"


def crashes_of(text: str) -> tuple[Crash, ...]:
    """Parse the column `crashes`."""
    found = (entry.split(FIELD) for entry in text.split(ENTRY) if entry)
    return tuple(
        Crash(worker=worker, progress=progress_from_json(progress), claimed_at=datetime.fromisoformat(at))
        for worker, progress, at in found
    )


def running_of(row: sa.Row[str, str, str, str, datetime]) -> Running:
    """Return a running plan from its row."""
    progress = progress_from_json(row.progress)
    return Running(plan=plan_from_json(row.plan), worker=row.worker, progress=progress, since=row.claimed_at)


def waiting_of(row: sa.Row[str, str, int, int, datetime, str]) -> Waiting:
    """Return a waiting plan from its row, for display."""
    return Waiting(
        plan_id=row.id,
        run_id=row.run_id,
        step=row.step,
        note=row.note,
        noted_at=row.claimed_at,
        is_sweep=row.place >= FIRST_PLACE_OF_SWEEPS,
    )


def unfinished_of(counted: Sequence[sa.Row[str, str, int]]) -> dict[str, int]:
    """Return the number of waiting and running plans of each run."""
    numbers: dict[str, int] = {}
    for row in counted:
        if row.state in (PlanState.WAITING, PlanState.RUNNING):
            numbers[row.run_id] = numbers.get(row.run_id, 0) + row.plans
    return numbers
