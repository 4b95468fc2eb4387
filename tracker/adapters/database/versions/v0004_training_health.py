"""What a trainer's logs say: cursors, curves and incidents."""

from alembic import op

from tracker.adapters.database.columns import METADATA
from tracker.adapters.database.health_tables import (
    HEALTH_INCIDENTS,
    HEALTH_POINTS,
    HEALTH_READERS,
    HEALTH_RUNS,
    HEALTH_STREAMS,
)

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the tables."""
    tables = [HEALTH_RUNS, HEALTH_STREAMS, HEALTH_READERS, HEALTH_INCIDENTS, HEALTH_POINTS]
    METADATA.create_all(op.get_bind(), tables)
