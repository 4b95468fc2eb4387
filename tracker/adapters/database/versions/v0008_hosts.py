"""What was read of logs is stored by machine; until now, all was that of the watcher's."""

import sqlalchemy as sa
from alembic import op

from tracker.adapters.database.columns import METADATA
from tracker.adapters.database.health_tables import (
    HEALTH_CURVES,
    HEALTH_POINTS,
    HEALTH_READERS,
    HEALTH_RUNS,
    HEALTH_STREAMS,
)

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Make the tables again with the machine, unless script 0004 has just created them as they are now."""
    connection = op.get_bind()
    METADATA.create_all(connection, [HEALTH_CURVES])
    if "host" in {column["name"] for column in sa.inspect(connection).get_columns("health_runs")}:
        return
    op.drop_index("health_streams_by_run", "health_streams")
    for table in (HEALTH_RUNS, HEALTH_STREAMS, HEALTH_READERS):
        op.rename_table(table.name, f"{table.name}_before")
        METADATA.create_all(connection, [table])
        names = [column.name for column in table.columns if column.name != "host"]
        before = sa.table(f"{table.name}_before", *(sa.column(name) for name in names))
        rows = sa.select(sa.literal(""), *(before.c[name] for name in names))
        connection.execute(table.insert().from_select(["host", *names], rows))
        op.drop_table(f"{table.name}_before")
    logged = sa.select(HEALTH_POINTS.c.run_id, HEALTH_POINTS.c.key, sa.literal("")).where(~HEALTH_POINTS.c.stated)
    connection.execute(HEALTH_CURVES.insert().from_select(["run_id", "key", "host"], logged.distinct()))
