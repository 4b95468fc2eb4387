"""Tables of the outbox of the tracking store. A change also needs a new script in `versions`."""

from sqlalchemy import BigInteger, Boolean, Column, Double, Index, Integer, LargeBinary, MetaData, String, Table, Text

METADATA = MetaData()
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
