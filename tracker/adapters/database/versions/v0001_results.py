"""History, outboxes, alerts, sweeps, and the leaders of runs."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    _create_measured()
    _create_judged()
    _create_outbox()
    _create_alerts()
    _create_sweeps()
    _create_leaders()


def _create_measured() -> None:
    op.create_table(
        "history_records",
        sa.Column("plan_id", sa.String(64), primary_key=True),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("finished_at", sa.String(32), nullable=False),
        sa.Column("record", sa.LargeBinary, nullable=False),
        sa.Column("samples", sa.String(64), nullable=False),
    )
    op.create_index("history_records_by_run", "history_records", ["run_id", "step"])
    op.create_table(
        "history_calibrations",
        sa.Column("plan_id", sa.String(64), primary_key=True),
        sa.Column("finished_at", sa.String(32), nullable=False),
        sa.Column("calibration", sa.Text, nullable=False),
    )
    op.create_table(
        "history_gaps",
        sa.Column("run_id", sa.Text, primary_key=True),
        sa.Column("step", sa.BigInteger, primary_key=True),
        sa.Column("code", sa.String(64), primary_key=True),
        sa.Column("gap", sa.Text, nullable=False),
    )


def _create_judged() -> None:
    op.create_table(
        "history_reports",
        sa.Column("plan_id", sa.String(64), primary_key=True),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("report", sa.Text, nullable=False),
    )
    op.create_index("history_reports_by_run", "history_reports", ["run_id", "step"])
    op.create_table(
        "history_outlines",
        sa.Column("plan_id", sa.String(64), primary_key=True),
        sa.Column("outline", sa.Text, nullable=False),
    )
    op.create_table(
        "history_incidents",
        sa.Column("key", sa.String(64), primary_key=True),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("opened_step", sa.BigInteger, nullable=False),
        sa.Column("incident", sa.Text, nullable=False),
    )
    op.create_index("history_incidents_by_run", "history_incidents", ["run_id", "opened_step"])
    op.create_table(
        "history_acceptances",
        sa.Column("key", sa.String(64), primary_key=True),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("acceptance", sa.Text, nullable=False),
    )
    op.create_index("history_acceptances_by_run", "history_acceptances", ["run_id", "step"])


def _create_outbox() -> None:
    op.create_table(
        "outbox_items",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("key", sa.String(80), nullable=False, unique=True),
        sa.Column("body", sa.LargeBinary),
        sa.Column("sent", sa.Boolean, nullable=False),
        sa.Column("refused", sa.Integer, nullable=False),
        sa.Column("retry_at_s", sa.Double, nullable=False),
        sa.Column("run_id", sa.Text, nullable=False),
    )
    op.create_index("outbox_items_waiting", "outbox_items", ["sent", "id"])
    op.create_table(
        "outbox_points",
        sa.Column("run_id", sa.Text, primary_key=True),
        sa.Column("key", sa.String(250), primary_key=True),
        sa.Column("step", sa.BigInteger, primary_key=True),
        sa.Column("value", sa.Double, primary_key=True),
    )
    op.create_table(
        "outbox_values",
        sa.Column("checkpoint", sa.String(64), primary_key=True),
        sa.Column("key", sa.String(250), primary_key=True),
        sa.Column("value", sa.Double, nullable=False),
        sa.Column("timestamp_ms", sa.BigInteger, nullable=False),
    )


def _create_alerts() -> None:
    op.create_table(
        "history_alerts",
        sa.Column("fingerprint", sa.String(64), primary_key=True),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("alert", sa.Text, nullable=False),
    )
    op.create_index("history_alerts_by_run", "history_alerts", ["run_id", "state"])
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
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("last_error", sa.Text, nullable=False),
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


def _create_sweeps() -> None:
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


def _create_leaders() -> None:
    op.create_table(
        "watch_leaders",
        sa.Column("run_id", sa.Text, primary_key=True),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("since", sa.String(32), nullable=False),
        sa.Column("output_dir", sa.Text, nullable=False),
    )
