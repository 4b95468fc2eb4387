"""Tables of training health: what was read of the logs, and what they showed."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    String,
    Table,
    Text,
)

from eval_jobs.queue.plans_sql import UtcText
from tracker.adapters.database.columns import METADATA, AsciiText

HEALTH_RUNS = Table(
    "health_runs",
    METADATA,
    Column("run_id", Text, primary_key=True),
    # The machine of the agent; empty: that of the watcher.
    Column("host", AsciiText, primary_key=True),
    # The run of the settings, of which `run_id` may be a sub-folder.
    Column("run", Text, nullable=False),
    Column("read_at", UtcText, nullable=False),
    Column("last_step", BigInteger),
    Column("productive_share", Double),
    Column("progress", Text, nullable=False),
    Column("usual_s", Double),
    # JSON.
    Column("summary", Text, nullable=False),
    Column("state", Text, nullable=False),
)
"""How each run stands by the logs of a machine (`domain.health.stored.RunProgress`), and what was read (`RunState`)."""
HEALTH_STREAMS = Table(
    "health_streams",
    METADATA,
    # A hash: paths may be longer than an index can hold.
    Column("key", String(64), primary_key=True),
    Column("run", Text, nullable=False),
    Column("host", AsciiText, nullable=False),
    Column("path", AsciiText, nullable=False),
    Column("cursor", Text, nullable=False),
    Index("health_streams_by_run", "run"),
)
"""How far each log was read."""
HEALTH_READERS = Table(
    "health_readers",
    METADATA,
    Column("run", Text, primary_key=True),
    Column("host", AsciiText, primary_key=True),
    # Raised by each process that begins to read: only the newest one may save.
    Column("reader", Integer, nullable=False),
)
"""Who reads the logs of each run on each machine."""
HEALTH_CURVES = Table(
    "health_curves",
    METADATA,
    Column("run_id", Text, primary_key=True),
    Column("key", String(250), primary_key=True),
    Column("host", AsciiText, nullable=False),
)
"""The machine that logged a metric first: only its points count, as agents may read the same logs."""
HEALTH_INCIDENTS = Table(
    "health_incidents",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("run_id", Text, nullable=False),
    Column("seen_at", UtcText, nullable=False),
    Column("incident", Text, nullable=False),
    # How a user closed it, as a document: the reader of the logs does not change it.
    Column("dismissed", AsciiText),
    Index("health_incidents_by_run", "run_id", "seen_at"),
)
HEALTH_POINTS = Table(
    "health_points",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("run_id", Text, nullable=False),
    Column("key", String(250), nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("value", Double, nullable=False),
    # Whether the trainer saved it with a checkpoint; else it is from a log.
    Column("stated", Boolean, nullable=False),
    Index("health_points_by_run", "run_id", "stated", "id"),
)
"""Training curves as they were logged and saved, thinned; a point of an earlier step begins a branch."""
