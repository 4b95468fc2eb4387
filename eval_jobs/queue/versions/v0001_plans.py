"""The plans, from waiting to acknowledged."""

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
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("plan", sa.Text, nullable=False),
        sa.Column("added_at", sa.String(32), nullable=False),
        sa.Column("place", sa.BigInteger, nullable=False),
        sa.Column("may_skip", sa.Boolean, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("lost", sa.Integer, nullable=False),
        sa.Column("worker", sa.Text, nullable=False),
        sa.Column("claimed_at", sa.String(32)),
        sa.Column("lease_until", sa.String(32)),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("progress", sa.Text, nullable=False),
        sa.Column("answered", sa.Integer, nullable=False),
        sa.Column("answered_at_loss", sa.Integer, nullable=False),
        sa.Column("crashes", sa.Text, nullable=False),
        sa.Column("stalled", sa.Integer, nullable=False),
        sa.Column("revived", sa.Integer, nullable=False),
        sa.Column("finished_at", sa.String(32)),
        sa.Column("record", sa.LargeBinary),
        sa.Column("failed", sa.Boolean),
        sa.Column("poisoned", sa.Boolean, nullable=False),
    )
    op.create_index("eval_plans_in_turn", "eval_plans", ["state", "run_id", "place", "id"])
    op.create_index("eval_plans_by_run", "eval_plans", ["run_id", "claimed_at"])
