"""Tables of the alert outbox and of silences. A change also needs a new script in `versions`."""

from sqlalchemy import BigInteger, Boolean, Column, Double, Index, Integer, MetaData, String, Table, Text

from eval_jobs.queue.plans_sql import UtcText

METADATA = MetaData()
OUTBOX = Table(
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
