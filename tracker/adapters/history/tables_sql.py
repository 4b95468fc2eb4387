"""Tables of the history. A change also needs a new script in `versions`."""

from sqlalchemy import BigInteger, Column, Index, LargeBinary, MetaData, String, Table, Text

from eval_jobs.queue.plans_sql import UtcText

METADATA = MetaData()
RECORDS = Table(
    "history_records",
    METADATA,
    Column("plan_id", String(64), primary_key=True),
    Column("run_id", Text, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("finished_at", UtcText, nullable=False),
    Column("record", LargeBinary, nullable=False),
    # Version of the files with its samples; empty if it has none.
    Column("samples", String(64), nullable=False),
    Index("history_records_by_run", "run_id", "step"),
)
REPORTS = Table(
    "history_reports",
    METADATA,
    Column("plan_id", String(64), primary_key=True),
    Column("run_id", Text, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("created_at", UtcText, nullable=False),
    Column("report", Text, nullable=False),
    Index("history_reports_by_run", "run_id", "step"),
)
OUTLINES = Table(
    "history_outlines",
    METADATA,
    # Separate from the reports, which are thousands of characters long: reading outlines must not scan them.
    Column("plan_id", String(64), primary_key=True),
    Column("outline", Text, nullable=False),
)
INCIDENTS = Table(
    "history_incidents",
    METADATA,
    # A hash: names of benchmarks and subsets may be longer than an index can hold.
    Column("key", String(64), primary_key=True),
    Column("run_id", Text, nullable=False),
    Column("opened_step", BigInteger, nullable=False),
    Column("incident", Text, nullable=False),
    Index("history_incidents_by_run", "run_id", "opened_step"),
)
ACCEPTANCES = Table(
    "history_acceptances",
    METADATA,
    Column("key", String(64), primary_key=True),
    Column("run_id", Text, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("acceptance", Text, nullable=False),
    Index("history_acceptances_by_run", "run_id", "step"),
)
GAPS = Table(
    "history_gaps",
    METADATA,
    Column("run_id", Text, primary_key=True),
    Column("step", BigInteger, primary_key=True),
    Column("code", String(64), primary_key=True),
    Column("gap", Text, nullable=False),
)
CALIBRATIONS = Table(
    "history_calibrations",
    METADATA,
    Column("plan_id", String(64), primary_key=True),
    Column("finished_at", UtcText, nullable=False),
    Column("calibration", Text, nullable=False),
)
ALERTS = Table(
    "history_alerts",
    METADATA,
    Column("fingerprint", String(64), primary_key=True),
    Column("run_id", Text, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),
    Column("alert", Text, nullable=False),
    Index("history_alerts_by_run", "run_id", "state"),
)
