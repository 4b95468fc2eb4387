"""Who watches a run; and which run an item of the outbox belongs to, because each run has its own sender."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the table of leaders and give the outbox its column."""
    op.create_table(
        "watch_leaders",
        sa.Column("run_id", sa.Text, primary_key=True),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("since", sa.String(32), nullable=False),
        sa.Column("output_dir", sa.Text, nullable=False),
    )
    op.add_column("outbox_items", sa.Column("run_id", sa.Text))
