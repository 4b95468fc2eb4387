"""MLflow: runs, metrics, registry and sample pages, and its server.

MLflow reads its settings when it is imported, so they are set before any module of this package can import it.
"""

from tracker.adapters.mlflow import environment as environment
