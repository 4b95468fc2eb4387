"""A record names the files of its samples; short outlines stand beside the reports."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add what is new; records and reports from before have neither."""
    op.add_column("history_records", sa.Column("samples", sa.String(64)))
    op.create_table(
        "history_outlines",
        sa.Column("plan_id", sa.String(64), primary_key=True),
        sa.Column("outline", sa.Text, nullable=False),
    )
