"""Numbers of changes are in a table of their own."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Remove the number that each run had, unless an earlier script has created the tables as they are now."""
    if "changes" in {column["name"] for column in sa.inspect(op.get_bind()).get_columns("health_runs")}:
        op.drop_column("health_runs", "changes")
