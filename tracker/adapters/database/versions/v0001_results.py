"""History and outbox, as they were before versions were kept; what such a database has already is taken over."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables of history and outbox."""
    _create_measured()
    _create_judged()
    _create_outbox()


# --- private


def _create_measured() -> None:
    op.create_table(
        "history_records",
        sa.Column("plan_id", sa.String(64), primary_key=True),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("finished_at", sa.String(32), nullable=False),
        sa.Column("record", sa.LargeBinary, nullable=False),
        if_not_exists=True,
    )
    op.create_index("history_records_by_run", "history_records", ["run_id", "step"], if_not_exists=True)
    op.create_table(
        "history_gaps",
        sa.Column("run_id", sa.Text, primary_key=True),
        sa.Column("step", sa.BigInteger, primary_key=True),
        sa.Column("code", sa.String(64), primary_key=True),
        sa.Column("gap", sa.Text, nullable=False),
        if_not_exists=True,
    )


def _create_judged() -> None:
    op.create_table(
        "history_reports",
        sa.Column("plan_id", sa.String(64), primary_key=True),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("report", sa.Text, nullable=False),
        if_not_exists=True,
    )
    op.create_index("history_reports_by_run", "history_reports", ["run_id", "step"], if_not_exists=True)
    op.create_table(
        "history_episodes",
        sa.Column("key", sa.String(64), primary_key=True),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("opened_step", sa.BigInteger, nullable=False),
        sa.Column("episode", sa.Text, nullable=False),
        if_not_exists=True,
    )
    op.create_index("history_episodes_by_run", "history_episodes", ["run_id", "opened_step"], if_not_exists=True)
    op.create_table(
        "history_acceptances",
        sa.Column("key", sa.String(64), primary_key=True),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("acceptance", sa.Text, nullable=False),
        if_not_exists=True,
    )
    op.create_index("history_acceptances_by_run", "history_acceptances", ["run_id", "step"], if_not_exists=True)
    op.create_table(
        "history_alerts",
        sa.Column("fingerprint", sa.String(64), primary_key=True),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("alert", sa.Text, nullable=False),
        if_not_exists=True,
    )
    op.create_index("history_alerts_by_run", "history_alerts", ["run_id", "state"], if_not_exists=True)


def _create_outbox() -> None:
    op.create_table(
        "outbox_items",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("key", sa.String(80), nullable=False, unique=True),
        sa.Column("body", sa.LargeBinary),
        sa.Column("sent", sa.Boolean, nullable=False),
        sa.Column("refused", sa.Integer, nullable=False),
        sa.Column("retry_at_s", sa.Double, nullable=False),
        if_not_exists=True,
    )
    op.create_index("outbox_items_waiting", "outbox_items", ["sent", "id"], if_not_exists=True)
    op.create_table(
        "outbox_points",
        sa.Column("run_id", sa.Text, primary_key=True),
        sa.Column("key", sa.String(250), primary_key=True),
        sa.Column("step", sa.BigInteger, primary_key=True),
        sa.Column("value", sa.Double, primary_key=True),
        if_not_exists=True,
    )
    op.create_table(
        "outbox_values",
        sa.Column("plan_id", sa.String(64), primary_key=True),
        sa.Column("key", sa.String(250), primary_key=True),
        sa.Column("value", sa.Double, nullable=False),
        sa.Column("timestamp_ms", sa.BigInteger, nullable=False),
        if_not_exists=True,
    )
