"""Why the tracking store rejected an item of the outbox."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the column."""
    op.add_column("outbox_items", sa.Column("reason", sa.Text))
