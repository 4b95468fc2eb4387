"""`tracker.ports.EventLog` in one narrow table."""

from collections.abc import Iterable

from sqlalchemy import Connection, Engine, func, or_, select

from eval_jobs.queue.database_sql import belongs_to, insert_into, transaction
from tracker.adapters.database.tables import EVENTS
from tracker.domain.log.events import EventKind, RunEvent

_POSTGRES_LOCK = 0x7472_6163_6B65_7202
"""As in `eval_jobs.queue.migrate_sql`."""


class SqlEventLog:
    """The log in the database behind `_engine`."""

    _engine: Engine

    def log(self, events: Iterable[RunEvent]) -> None:
        """Add events; see `ports.EventLog`."""
        with transaction(self._engine) as connection:
            add_events(connection, events)

    def is_logged(self, key: str) -> bool:
        """Return whether an event is in the log; see `ports.EventLog`."""
        with transaction(self._engine) as connection:
            return connection.scalar(select(EVENTS.c.number).where(EVENTS.c.key == key)) is not None

    def events(self, run: str | None = None, *, after: int = 0, last: int = 0) -> tuple[RunEvent, ...]:
        """Return events; see `ports.EventLog`."""
        query = select(EVENTS).where(EVENTS.c.number > after).order_by(EVENTS.c.number.desc()).limit(last or None)
        if run is not None:
            query = query.where(or_(belongs_to(EVENTS.c.run_id, run), EVENTS.c.run_id == run.partition("/")[0]))
        with transaction(self._engine) as connection:
            rows = connection.execute(query).mappings().all()
        return tuple(RunEvent(**{**row, "kind": EventKind(row["kind"])}) for row in reversed(rows))


def add_events(connection: Connection, events: Iterable[RunEvent]) -> None:
    """Add events as the last step of a transaction: until it ends, no other one adds any."""
    rows = [{key: value for key, value in vars(event).items() if key != "number"} for event in events]
    if rows and connection.dialect.name == "postgresql":  # SQLite has one writer at a time
        connection.execute(select(func.pg_advisory_xact_lock(_POSTGRES_LOCK)))
    if rows:
        connection.execute(insert_into(connection, EVENTS).on_conflict_do_nothing(), rows)
