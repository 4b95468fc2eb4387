"""What waits to be told to people, channel by channel, and what somebody silenced."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create the outbox of alerts and the table of silences."""
    op.create_table(
        "alert_outbox",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("channel", sa.Text, nullable=False),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("alert", sa.Text, nullable=False),
        sa.Column("sent", sa.Boolean, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("retry_at_s", sa.Double, nullable=False),
        sa.Column("trouble", sa.Text, nullable=False),
    )
    op.create_index("alert_outbox_waiting", "alert_outbox", ["sent", "channel", "id"])
    op.create_index("alert_outbox_by_cause", "alert_outbox", ["fingerprint", "channel", "id"])
    op.create_table(
        "alert_silences",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("ends_at", sa.String(32), nullable=False),
        sa.Column("silence", sa.Text, nullable=False),
    )
