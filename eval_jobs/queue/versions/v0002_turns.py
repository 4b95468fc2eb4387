"""Whose turn it is, what was skipped, and how often a plan's workers went away."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the columns; what waits keeps its order, lowest step first, until it is added again."""
    if op.get_bind().dialect.name == "postgresql":  # SQLite's integers have 64 bits anyway
        op.alter_column("eval_plans", "step", type_=sa.BigInteger)
    op.add_column("eval_plans", sa.Column("place", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("eval_plans", sa.Column("may_skip", sa.Boolean, nullable=False, server_default=sa.false()))
    for name in ("answered", "answered_at_loss", "stalled", "revived"):
        op.add_column("eval_plans", sa.Column(name, sa.Integer, nullable=False, server_default="0"))
    op.add_column("eval_plans", sa.Column("crashes", sa.Text, nullable=False, server_default=""))
    op.add_column("eval_plans", sa.Column("poisoned", sa.Boolean, nullable=False, server_default=sa.false()))
    op.execute("UPDATE eval_plans SET place = step")
    op.drop_index("eval_plans_by_state", "eval_plans")
    op.create_index("eval_plans_in_turn", "eval_plans", ["state", "run_id", "place", "id"])
    op.create_index("eval_plans_by_run", "eval_plans", ["run_id", "claimed_at"])
