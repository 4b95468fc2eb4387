"""The first version: `tables` without the later changes."""

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Change nothing."""
