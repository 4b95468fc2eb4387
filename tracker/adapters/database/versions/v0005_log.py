"""The log of a run, and its changes of settings."""

from alembic import op

from tracker.adapters.database.columns import METADATA
from tracker.adapters.database.tables import EVENTS, SERIES_CHANGES

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create the tables, which are empty: what happened before is not known."""
    METADATA.create_all(op.get_bind(), [EVENTS, SERIES_CHANGES])
