"""Plans, as they were before versions were kept; what such a database has already is taken over."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the table of plans."""
    op.create_table(
        "eval_plans",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("plan", sa.Text, nullable=False),
        sa.Column("added_at", sa.String(32), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("lost", sa.Integer, nullable=False),
        sa.Column("worker", sa.Text, nullable=False),
        sa.Column("claimed_at", sa.String(32)),
        sa.Column("lease_until", sa.String(32)),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("finished_at", sa.String(32)),
        sa.Column("record", sa.LargeBinary),
        sa.Column("failed", sa.Boolean),
        if_not_exists=True,
    )
    if "failed" not in {column["name"] for column in sa.inspect(op.get_bind()).get_columns("eval_plans")}:
        op.add_column("eval_plans", sa.Column("failed", sa.Boolean))
    op.create_index("eval_plans_by_state", "eval_plans", ["state", "step"], if_not_exists=True)
