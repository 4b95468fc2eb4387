"""What asking a checkpoint twice has shown."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the table of calibrations."""
    op.create_table(
        "history_calibrations",
        sa.Column("plan_id", sa.String(64), primary_key=True),
        sa.Column("finished_at", sa.String(32), nullable=False),
        sa.Column("calibration", sa.Text, nullable=False),
    )
