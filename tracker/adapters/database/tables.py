"""Versions of the tracker's own tables, those of history and outbox."""

from pathlib import Path

from eval_jobs.queue.migrate_sql import TableHistory

TRACKER_TABLES = TableHistory(
    name="history and outbox", folder=Path(__file__).parent, version_table="checkpoint_tracker_version"
)
