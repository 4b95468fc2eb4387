"""The log of a run."""

from alembic import op

from tracker.adapters.database.tables import EVENTS, METADATA

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create the table, which is empty: what happened before is not known."""
    METADATA.create_all(op.get_bind(), [EVENTS])
