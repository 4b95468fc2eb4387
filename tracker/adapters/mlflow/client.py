"""Opens a connection to an MLflow store: a server by http(s), or a SQL database without a server.

MLflow's own timeouts are minutes; here a store that does not respond fails after seconds.
"""

import fcntl
import logging
import os
import shutil
import warnings
from functools import partial
from pathlib import Path

import requests
from mlflow import MlflowClient
from mlflow.utils import request_utils

from eval_jobs.limits import MLFLOW_ANSWERS
from tracker.adapters.bounded_http import ANSWER_S, BoundedAdapter
from tracker.adapters.mlflow.address import SQLITE_PREFIX, check_reachable, sqlite_path

_get_session = request_utils._get_request_session  # noqa: SLF001 - the only place where MLflow opens its connections


def connect(uri: str, *, answer_s: float = ANSWER_S) -> MlflowClient:
    """Return a client after checking that its store responds; a missing SQLite store is created.

    `answer_s`: longest time of an answer, for all clients of this process.

    Raises:
        TrackingUnreachable: the store does not respond, or the folder cannot be created or written.
        MlflowException, SQLAlchemyError: from the client; see `errors_sql.mapped_mlflow_errors`.
    """
    # MLflow logs the tracebacks of errors that it also raises, and every table that it creates.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    request_utils._get_request_session = partial(_bounded_session, answer_s)  # noqa: SLF001
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # MLflow's models use a deprecated option of SQLAlchemy
        path = sqlite_path(uri)
        if path is not None and not path.exists():
            _create_sqlite(path)
        check_reachable(uri)
        return MlflowClient(tracking_uri=uri)


def _bounded_session(answer_s: float, *args: object, **kwargs: object) -> requests.Session:
    session: requests.Session = _get_session(*args, **kwargs)  # the same one for the same arguments
    adapter = session.get_adapter("https://")
    if not isinstance(adapter, BoundedAdapter) or adapter.answer_s != answer_s:
        for scheme in ("http://", "https://"):
            session.mount(scheme, BoundedAdapter(answer_s, MLFLOW_ANSWERS, max_retries=adapter.max_retries))  # type: ignore[attr-defined]
    return session


def _create_sqlite(path: Path) -> None:
    """Create a SQLite store with its tables under a temporary name, then rename it.

    Creating the tables takes MLflow seconds, and it never accepts a database whose creation was interrupted by a kill.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft, whole = path.with_name(f".{path.name}.draft"), path.with_name(f".{path.name}.whole")
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # closing it, or a kill, releases the lock
        for name in (draft, draft.with_name(f"{draft.name}-journal"), whole):
            name.unlink(missing_ok=True)  # left by a killed process
        if not path.exists():
            MlflowClient(tracking_uri=f"{SQLITE_PREFIX}{draft}")
            shutil.copyfile(draft, whole)  # MLflow keeps its connection to the draft
            draft.unlink()
            whole.replace(path)
    finally:
        os.close(folder)
