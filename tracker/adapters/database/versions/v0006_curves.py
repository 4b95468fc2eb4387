"""How runs stand, and what trainers saved of their curves, in columns."""

import sqlalchemy as sa
from alembic import op

from eval_jobs.codec import ValueDocument
from eval_jobs.errors import StoreError
from tracker.adapters.database.codec import progress_columns
from tracker.adapters.database.health_tables import HEALTH_POINTS, HEALTH_RUNS
from tracker.adapters.database.tables import POINTS
from tracker.domain.health.run_state import RunState
from tracker.domain.health.stored import progress_of

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the columns, and fill them from the stored states and from what was sent to the tracking store."""
    connection = op.get_bind()
    # Else script 0004 has just created the tables as they are now.
    if "stated" not in {column["name"] for column in sa.inspect(connection).get_columns("health_points")}:
        _add_columns()
        _fill_progress(connection)
    _fill_points(connection)


def _add_columns() -> None:
    op.add_column("health_points", sa.Column("stated", sa.Boolean, nullable=False, server_default=sa.false()))
    op.drop_index("health_points_by_run", "health_points")
    op.create_index("health_points_by_run", "health_points", ["run_id", "stated", "id"])
    for column in (sa.Column("last_step", sa.BigInteger), sa.Column("productive_share", sa.Double)):
        op.add_column("health_runs", column)
    op.add_column("health_runs", sa.Column("progress", sa.Text, nullable=False, server_default=""))
    op.add_column("health_runs", sa.Column("usual_s", sa.Double))
    op.add_column("health_runs", sa.Column("summary", sa.Text, nullable=False, server_default="{}"))


def _fill_progress(connection: sa.Connection) -> None:
    states = ValueDocument(RunState, "a stored state of logs")
    stored = HEALTH_RUNS.c
    for row in connection.execute(sa.select(stored.run_id, stored.read_at, stored.state)).all():
        try:
            progress = progress_of(row.run_id, states.from_json(row.state), row.read_at)
        except StoreError:  # damaged: the agent reads the logs again
            continue
        of_run = stored.run_id == row.run_id
        connection.execute(sa.update(HEALTH_RUNS).where(of_run).values(progress_columns(progress)))


def _fill_points(connection: sa.Connection) -> None:
    """Copy the points that are from no log: a trainer saved them."""
    names = "run_id", "key", "step", "value"
    same = [POINTS.c[name] == HEALTH_POINTS.c[name] for name in names]
    saved = sa.select(*(POINTS.c[name] for name in names), sa.true()).where(~sa.exists().where(*same))
    connection.execute(HEALTH_POINTS.insert().from_select([*names, "stated"], saved.order_by(POINTS.c.step)))
