"""Opens databases in processes of their own, which import little."""

from eval_jobs.queue.database_sql import open_database
from eval_jobs.queue.migrate_sql import QUEUE_TABLES, TableHistory, bring_up_to_date
from tracker.adapters.database.tables import TRACKER_TABLES

HISTORIES = (QUEUE_TABLES, TRACKER_TABLES)


def open_all(url: str, histories: tuple[TableHistory, ...] = HISTORIES) -> None:
    """Create or change all tables of the database."""
    engine = open_database(url)
    for history in histories:
        bring_up_to_date(engine, history)
    engine.dispose()
