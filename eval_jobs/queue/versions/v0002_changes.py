"""What changed, with a number."""

from alembic import op

from eval_jobs.queue.plans_sql import CHANGES, COUNTERS

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the tables, unless an earlier script has created all of this version."""
    for table in (CHANGES, COUNTERS):
        table.create(op.get_bind(), checkfirst=True)
