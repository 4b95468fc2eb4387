"""Loads what writing to MLflow takes, at a moment of the caller's choice."""

import pyarrow as pa


def load(uri: str) -> None:
    """Import MLflow with what it needs for the store at `uri`, and let PyArrow look for pandas."""
    pa.array([""])
    import mlflow

    if not uri.startswith("http"):
        import mlflow.store.db.utils  # noqa: F401 - loaded, not used
