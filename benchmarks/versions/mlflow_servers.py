"""One stored outbox, sent to MLflow servers of several versions by the client that is installed here."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from mlflow import MlflowClient

from benchmarks.versions.environments import interpreter, versions_in
from eval_jobs.errors import TrackerError
from eval_jobs.queue.database_sql import open_database
from tests.fakes.tracking import FakeSink
from tests.mlflow_stores import EXPERIMENT, MlflowFiles
from tests.records import forgetting_run, scores_of_run
from tests.shared_servers import free_port, start_detached, stop_detached
from tracker.adapters.mlflow.client import connect
from tracker.adapters.mlflow.runs import TrackingSettings
from tracker.adapters.mlflow.samples import write_pages
from tracker.adapters.mlflow.store import MlflowStore
from tracker.adapters.tracking.outbox_sql import OutboxTracking
from tracker.domain.best.choice import champions_of
from tracker.domain.compare.sample_pages import sample_pages
from tracker.ports import TrackingSink

SERVERS = {"3.1.4": ("sqlalchemy<2.1",), "3.5.1": ("sqlalchemy<2.1",), "3.10.1": ("sqlalchemy<2.1",), "3.18.0": ()}
"""Versions, and what else their environments need."""
SAME_OR_OLDER = ("mlflow-skinny<=3.18.0", "mlflow-tracing<=3.18.0")
"""Where an index does not have the newest of these, the server runs on the newest that it has."""
RUN = forgetting_run(samples=20)
FLUSHES = 12


def checked(version: str) -> str:
    """Return what came of sending the outbox to a server of that version."""
    needed = (f"mlflow=={version}", *SERVERS[version])
    python = interpreter(f"mlflow-{version}", *needed, overrides=SAME_OR_OLDER if version == "3.18.0" else ())
    with TemporaryDirectory() as name:
        folder = Path(name)
        outbox = _stored_outbox(folder)
        files = MlflowFiles(folder)
        _send(outbox, folder / "reference.db", files.settings())
        with _server(python, folder / "server") as url:
            settings = files.settings(uri=url)
            sent = _send(outbox, folder / "sent.db", settings)
            same = _arrived(connect(url)) == _arrived(files.client())
            pages = _compared(settings)
    skinny = versions_in(python, "mlflow-skinny")[0]
    below = "" if skinny == version else f"; the server runs on mlflow-skinny {skinny}"
    return f"{sent}, {'the same content as in SQLite' if same else 'OTHER CONTENT than in SQLite'}; {pages}{below}"


def is_good(result: str) -> bool:
    """Return whether everything arrived."""
    return "the same content" in result and not {"FAILED", "INTERNAL_ERROR"} & set(result.replace(":", " ").split())


# --- private


def _stored_outbox(folder: Path) -> Path:
    database = folder / "outbox.db"
    with closing(_tracking(database, FakeSink())) as tracking:
        for record, report in zip(RUN.records, RUN.reports, strict=True):
            tracking.publish(record, report)
            tracking.publish_curves(record.plan.checkpoint, RUN.curves)
        tracking.publish_champions(RUN.records[-1].plan.checkpoint, champions_of(scores_of_run(RUN)))
    return database


def _tracking(database: Path, sink: TrackingSink) -> OutboxTracking:
    return OutboxTracking(open_database(f"sqlite:///{database}"), sink)


def _send(outbox: Path, copy: Path, settings: TrackingSettings) -> str:
    shutil.copy(outbox, copy)
    with closing(_tracking(copy, MlflowStore(settings))) as tracking:
        for _ in range(FLUSHES):
            if not tracking.flush():
                break
    with closing(sqlite3.connect(copy)) as connection:
        total, sent = connection.execute("SELECT count(*), sum(sent) FROM outbox_items").fetchone()
    return f"{sent} of {total} items"


@contextmanager
def _server(python: Path, folder: Path) -> Iterator[str]:
    folder.mkdir()
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    store = ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", f"{folder}/artifacts"]
    command = ["env", "-u", "PYTHONPATH", str(python), "-m", "mlflow", "server", *store]

    def is_ready() -> bool:
        try:
            return httpx.get(f"{url}/health", timeout=2.0, trust_env=False).is_success
        except httpx.TransportError:
            return False

    try:
        start_detached([*command, "--port", str(port), "--workers", "1"], folder, is_ready)
        yield url
    finally:
        stop_detached(folder)


def _arrived(client: MlflowClient) -> dict[str, Any]:
    """Return what a person can see of the run: points, models with their scores, and aliases."""
    experiment = client.get_experiment_by_name(EXPERIMENT)
    if experiment is None:
        return {}
    (run,) = client.search_runs([experiment.experiment_id])
    models = {m.model_id: m for m in client.search_logged_models([experiment.experiment_id])}
    points = [p for key in run.data.metrics for p in client.get_metric_history(run.info.run_id, key)]
    version_of = {
        alias: client.get_model_version_by_alias(EXPERIMENT, alias).source
        for alias in client.get_registered_model(EXPERIMENT).aliases
    }
    return {
        "points": sorted((p.key, p.step, p.timestamp, p.value) for p in points),
        "models": sorted(
            (m.name, m.params["step"], sorted((p.key, p.value) for p in m.metrics or ())) for m in models.values()
        ),
        "aliases": {alias: models[source.removeprefix("models:/")].name for alias, source in version_of.items()},
    }


def _compared(settings: TrackingSettings) -> str:
    before, after = RUN.records[5], RUN.records[8]
    try:
        count = len(list(write_pages(settings, sample_pages(before, after, ("facts",)).pages)))
    except TrackerError as error:
        return f"`compare --mlflow` is refused: {error.message}"
    except Exception as error:  # noqa: BLE001 - whatever it is, it belongs into the table
        return f"`compare --mlflow` FAILED: {type(error).__name__}: {str(error)[:120]}"
    return f"`compare --mlflow` wrote {count} pages"
