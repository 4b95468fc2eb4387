"""All tables of the tracker's database. The queue of plans has its own, in `eval_jobs.queue.plans_sql`.

A new or changed table needs a script in `versions` for the databases that exist.
"""

from pathlib import Path

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
)

from eval_jobs.queue.migrate_sql import TableHistory
from eval_jobs.queue.plans_sql import UtcText
from tracker.adapters.database import health_tables  # noqa: F401 - METADATA has its tables only when it is imported
from tracker.adapters.database.columns import METADATA, AsciiText

TRACKER_TABLES = TableHistory(
    name="history and outbox",
    folder=Path(__file__).parent,
    version_table="checkpoint_tracker_version",
    metadata=METADATA,
)
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
EVALUATIONS = Table(
    "history_evaluations",
    METADATA,
    Column("number", Integer, primary_key=True),
    Column("plan_id", String(64), nullable=False, unique=True),
    Column("run_id", Text, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("suite", AsciiText, nullable=False),
    Column("uri", AsciiText, nullable=False),
    Column("source_uri", AsciiText, nullable=False),
    Column("format", String(16), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("ready_at", UtcText, nullable=False),
    Column("base_model", AsciiText),
    Column("finished_at", UtcText),
    Column("judged_at", UtcText),
    Column("rules_version", Integer, nullable=False),
    Index("history_evaluations_by_run", "run_id", "step"),
)
"""One row for each plan with a record or a report."""
SUBJECTS = Table(
    "history_subjects",
    METADATA,
    Column("number", Integer, primary_key=True),
    # A hash: names of benchmarks and subsets may be longer than an index can hold.
    Column("key", String(64), nullable=False, unique=True),
    Column("benchmark", AsciiText, nullable=False),
    Column("subset", AsciiText, nullable=False),
    Column("measure", String(16), nullable=False),
    # Of results alone.
    Column("metric", AsciiText, nullable=False),
    Column("fingerprint", String(64), nullable=False),
    Column("higher_is_better", Boolean, nullable=False),
)
"""What results and verdicts are about: the names, once for thousands of checkpoints. Rows are never changed."""
MEASURED = Table(
    "history_results",
    METADATA,
    Column("evaluation", Integer, primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("subject", Integer, nullable=False),
    Column("failure", String(64), nullable=False),
    Column("score", Double),
    Column("stderr", Double),
    Column("coverage", Double),
    Column("duration_s", Double),
    Column("planned", BigInteger),
    Column("scored", BigInteger),
    Column("truncated", BigInteger),
    Column("unscored", BigInteger),
    Column("errors", BigInteger),
    Column("input_tokens", BigInteger),
    Column("output_tokens", BigInteger),
)
"""`domain.tables.results.Measured`, by the number of the evaluation."""
JUDGED = Table(
    "history_verdicts",
    METADATA,
    Column("evaluation", Integer, primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("subject", Integer, nullable=False),
    Column("word", String(16), nullable=False),
    Column("reason", AsciiText, nullable=False),
    Column("score", Double),
    Column("coverage", Double, nullable=False),
    Column("baseline", String(16), nullable=False),
    Column("delta", Double),
    Column("ci_low", Double),
    Column("ci_high", Double),
    Column("p_worse", Double),
    Column("p_better", Double),
    Column("mde", Double),
    Column("alpha_test", Double, nullable=False),
    Column("baseline_first", BigInteger),
    Column("baseline_last", BigInteger),
    Column("n_common", BigInteger),
    Column("n_lost", BigInteger),
    Column("n_gained", BigInteger),
    Column("lost_since", BigInteger),
    # JSON documents, for few rows.
    Column("missing", Text),
    Column("screened", Text),
)
"""`domain.tables.results.Judged`, by the number of the evaluation."""
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
SERIES_CHANGES = Table(
    "history_series_changes",
    METADATA,
    Column("key", String(64), primary_key=True),
    Column("run_id", Text, nullable=False),
    Column("at", UtcText, nullable=False),
    Column("change", Text, nullable=False),
    Index("history_series_changes_by_run", "run_id", "at"),
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
EVENTS = Table(
    "history_log",
    METADATA,
    Column("number", Integer, primary_key=True),
    Column("key", String(64), nullable=False, unique=True),
    Column("run_id", Text, nullable=False),
    Column("at", UtcText, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("step", BigInteger),
    *(Column(name, AsciiText, nullable=False) for name in ("subject", "before", "after", "reason")),
    Index("history_log_by_run", "run_id", "number"),
    sqlite_autoincrement=True,  # no number is used again
)
ITEMS = Table(
    "outbox_items",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("key", String(80), nullable=False, unique=True),
    Column("body", LargeBinary),
    Column("sent", Boolean, nullable=False),
    Column("refused", Integer, nullable=False),
    Column("retry_at_s", Double, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("reason", Text),
    Index("outbox_items_waiting", "sent", "id"),
)
POINTS = Table(
    "outbox_points",
    METADATA,
    Column("run_id", Text, primary_key=True),
    Column("key", String(250), primary_key=True),
    Column("step", BigInteger, primary_key=True),
    Column("value", Double, primary_key=True),
)
"""Every curve point that was ever queued: a rewound run has other values for the same steps."""
VALUES = Table(
    "outbox_values",
    METADATA,
    Column("checkpoint", String(64), primary_key=True),
    Column("key", String(250), primary_key=True),
    Column("value", Double, nullable=False),
    Column("timestamp_ms", BigInteger, nullable=False),
)
"""The newest value of every metric that was ever queued, by `ordering.checkpoint_key`."""
DELIVERIES = Table(
    "alert_outbox",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("run_id", Text, nullable=False),
    Column("channel", Text, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("fingerprint", String(64), nullable=False),
    Column("state", String(16), nullable=False),
    Column("alert", Text, nullable=False),
    Column("sent", Boolean, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("retry_at_s", Double, nullable=False),
    # `delivery.DeliveryStatus`.
    Column("status", String(16), nullable=False),
    # Last error of the channel, for display; empty: it has not refused the alert.
    Column("last_error", Text, nullable=False),
    Index("alert_outbox_waiting", "sent", "channel", "id"),
    Index("alert_outbox_by_cause", "fingerprint", "channel", "id"),
)
SILENCES = Table(
    "alert_silences",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("run_id", Text, nullable=False),
    Column("ends_at", UtcText, nullable=False),
    Column("silence", Text, nullable=False),
)
TURNS = Table(
    "sweep_turns",
    METADATA,
    Column("run_id", Text, primary_key=True),
    Column("sweep", Text, primary_key=True),
    Column("due_at", UtcText, primary_key=True),
    Column("state", String(16), nullable=False),
    Column("turn", Text, nullable=False),
    Index("sweep_turns_by_state", "run_id", "state", "due_at"),
)
LOOKS = Table(
    "sweep_looks",
    METADATA,
    Column("run_id", Text, primary_key=True),
    Column("sweep", Text, primary_key=True),
    Column("until", UtcText, nullable=False),
    Column("timetable", Text, nullable=False),
)
LEASES = Table(
    "sweep_leases",
    METADATA,
    Column("run_id", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("lease_until", UtcText, nullable=False),
)
RESULTS = Table(
    "sweep_results",
    METADATA,
    Column("plan_id", String(64), primary_key=True),
    Column("finished_at", UtcText, nullable=False),
    Column("record", LargeBinary, nullable=False),
)
LEADERS = Table(
    "watch_leaders",
    METADATA,
    Column("run_id", Text, primary_key=True),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("since", UtcText, nullable=False),
    Column("output_dir", Text, nullable=False),
)
"""The last leader of each run. Only the lock shows whether it still leads."""
