"""Settings that MLflow reads from the environment; the package sets them first. What the user has set stays.

log_in("admin", password)      # before the first request of this process
"""

import os

# MLflow would tell its makers about every client and server that starts; it decides when it is imported.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
# A server that hangs is given up soon, for the watcher waits meanwhile; trying again is the outbox's business.
# MLflow's own patience is 120 s, seven times.
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
# A proxy may ask for minutes of patience; the outbox has its own.
os.environ.setdefault("MLFLOW_HTTP_RESPECT_RETRY_AFTER_HEADER", "false")
# It prints links to stdout, where a command's own output goes.
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")


def log_in(username: str, password: str) -> None:
    """Have every request of this process to an MLflow server made as that user, whatever the environment named.

    MLflow's client takes a user from its variables only. Processes that are started from here get none of them
    (`eval_jobs.host.secrets.without_secrets`).
    """
    os.environ.pop("MLFLOW_TRACKING_TOKEN", None)
    os.environ["MLFLOW_TRACKING_USERNAME"] = username
    os.environ["MLFLOW_TRACKING_PASSWORD"] = password
