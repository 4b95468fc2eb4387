"""MLflow: runs, metrics, registry and sample pages, and its server.

MLflow reads its settings when it is imported, so they are set before any module of this package can import it. Values
set by the user are kept.
"""

import os

# MLflow would send telemetry about every client and server that starts; it reads this setting at import.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
# Requests to a hanging server must fail soon, because the watcher waits for them; the outbox retries.
# MLflow's own defaults are 120 s and seven retries.
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
# A proxy may ask to wait for minutes; the outbox has its own backoff.
os.environ.setdefault("MLFLOW_HTTP_RESPECT_RETRY_AFTER_HEADER", "false")
# MLflow prints links to stdout, which is for a command's own output.
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")


def log_in(username: str, password: str) -> None:
    """Make all requests of this process to an MLflow server as that user, whatever the environment sets.

    MLflow's client reads the user only from environment variables. Child processes other than an MLflow server do not
    inherit the password (`eval_jobs.host.secrets.passed_on`).
    """
    os.environ.pop("MLFLOW_TRACKING_TOKEN", None)
    os.environ["MLFLOW_TRACKING_USERNAME"] = username
    os.environ["MLFLOW_TRACKING_PASSWORD"] = password
