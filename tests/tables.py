"""Opens databases in processes of their own, which import little."""

from __future__ import annotations

from pathlib import Path

from eval_jobs.queue.database_sql import open_database
from eval_jobs.queue.migrate_sql import QUEUE_TABLES, TableHistory, bring_up_to_date
from tracker.adapters.database.tables import TRACKER_TABLES

HISTORIES = (QUEUE_TABLES, TRACKER_TABLES)


def open_all(url: str) -> None:
    """Create or change all tables of the database."""
    engine = open_database(url)
    for history in HISTORIES:
        bring_up_to_date(engine, history)
    engine.dispose()


def things(folder: Path) -> TableHistory:
    """Return a history of our own whose scripts lie in `folder`/versions."""
    return TableHistory(name="things", folder=folder, version_table="things_version")


def bring_things_up_to_date(url: str, folder: Path) -> None:
    """Create or change the tables of that history."""
    engine = open_database(url)
    bring_up_to_date(engine, things(folder))
    engine.dispose()
