"""The first version, as `plans_sql` creates it."""

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Change nothing."""
