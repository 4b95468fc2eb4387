"""The turns of sweeps, who may begin one, until when their timetables were followed, and what came of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Create the tables of sweeps."""
    op.create_table(
        "sweep_turns",
        sa.Column("run_id", sa.Text, primary_key=True),
        sa.Column("sweep", sa.Text, primary_key=True),
        sa.Column("due_at", sa.String(32), primary_key=True),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("turn", sa.Text, nullable=False),
    )
    op.create_index("sweep_turns_by_state", "sweep_turns", ["run_id", "state", "due_at"])
    op.create_table(
        "sweep_looks",
        sa.Column("run_id", sa.Text, primary_key=True),
        sa.Column("sweep", sa.Text, primary_key=True),
        sa.Column("until", sa.String(32), nullable=False),
        sa.Column("timetable", sa.Text, nullable=False),
    )
    op.create_table(
        "sweep_leases",
        sa.Column("run_id", sa.Text, primary_key=True),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("lease_until", sa.String(32), nullable=False),
    )
    op.create_table(
        "sweep_results",
        sa.Column("plan_id", sa.String(64), primary_key=True),
        sa.Column("finished_at", sa.String(32), nullable=False),
        sa.Column("record", sa.LargeBinary, nullable=False),
    )
