"""MLflow stores in SQLite files for tests, and everything that is in one, as plain values.

A new store is a copy of one whose tables were created once: creating them takes seconds.
"""

import atexit
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import LoggedModel, Metric, Run

from tracker.adapters.mlflow.client import connect
from tracker.adapters.mlflow.runs import TrackingSettings

EXPERIMENT = "tiny-forgetting"
_ID_IN_LINK = re.compile(r"experiments/\d+/")


@dataclass(frozen=True)
class MlflowFiles:
    """One store in `folder`."""

    folder: Path

    def __post_init__(self) -> None:
        if not self.database.exists():
            shutil.copy(_template(), self.database)

    @property
    def database(self) -> Path:
        return self.folder / "mlflow.db"

    @property
    def uri(self) -> str:
        return f"sqlite:///{self.database}"

    @property
    def artifacts(self) -> Path:
        return self.folder / "mlartifacts"

    def settings(self, **changes: str) -> TrackingSettings:
        values: dict[str, Any] = {
            "uri": self.uri,
            "experiment": EXPERIMENT,
            "output_dir": "/out",
        }
        return TrackingSettings(**(values | changes))

    def client(self) -> MlflowClient:
        return connect(self.uri)

    def runs(self, experiment: str = "") -> list[Run]:
        """Return the runs of one experiment, of all when none is named."""
        found = self.client().search_runs(self._experiments(experiment))
        return sorted(found, key=lambda run: run.info.run_name)

    def metrics(self, experiment: str = "") -> list[Metric]:
        """Return every point of every run."""
        client = self.client()
        return [
            point
            for run in self.runs(experiment)
            for key in run.data.metrics
            for point in client.get_metric_history(run.info.run_id, key)
        ]

    def models(self, experiment: str = "") -> list[LoggedModel]:
        found = self.client().search_logged_models(self._experiments(experiment))
        return sorted(found, key=lambda model: int(model.params["step"]))

    def files(self, experiment: str = "") -> dict[str, int]:
        """Return the size of every file of every run, by its path below the run's own folder."""
        runs = {run.info.run_id for run in self.runs(experiment)}
        found = [path for path in self.artifacts.rglob("*") if path.is_file() and runs & set(path.parts)]
        # A store without a server has RUN/artifacts, one behind a server EXPERIMENT/RUN/artifacts.
        return {str(path).rpartition("/artifacts/")[2]: path.stat().st_size for path in sorted(found)}

    def dump(self, experiment: str = "") -> dict[str, Any]:
        """Return all that a person can see, without the ids that MLflow makes up and an experiment's name."""
        client = self.client()
        chosen = self._experiments(experiment)
        steps = {model.model_id: int(model.params["step"]) for model in self.models(experiment)}
        return {
            "experiments": sorted(sorted(client.get_experiment(key).tags.items()) for key in chosen),
            "runs": [_run(run, steps) for run in self.runs(experiment)],
            "metrics": sorted((m.key, m.step, m.timestamp, m.value) for m in self.metrics(experiment)),
            "models": [_model(model) for model in self.models(experiment)],
            "files": self.files(experiment),
        }

    # --- private

    def _experiments(self, name: str) -> list[str]:
        return [e.experiment_id for e in self.client().search_experiments() if name in {"", e.name}]


@contextmanager
def locked(database: Path) -> Iterator[None]:
    """Hold the write lock of a SQLite file, as a long bulk insert of somebody else does."""
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


# --- private


@cache
def _template() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="tracker-mlflow-template-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    connect(f"sqlite:///{folder}/mlflow.db")
    return folder / "mlflow.db"


def _run(run: Run, steps: dict[str, int]) -> dict[str, Any]:
    return {
        "name": run.info.run_name,
        "status": run.info.status,
        "start": run.info.start_time,
        "end": run.info.end_time,
        "tags": {key: _ID_IN_LINK.sub("experiments/ID/", value) for key, value in run.data.tags.items()},
        "params": run.data.params,
        "datasets": sorted((d.dataset.name, d.dataset.digest) for d in run.inputs.dataset_inputs),
        "outputs": sorted((steps[o.model_id], o.step) for o in run.outputs.model_outputs),
    }


def _model(model: LoggedModel) -> dict[str, Any]:
    return {
        "name": model.name,
        "status": str(model.status),
        "params": model.params,
        "tags": model.tags,
        "metrics": sorted(
            (m.key, m.step, m.timestamp, m.value, m.dataset_name or "", m.dataset_digest or "") for m in model.metrics
        ),
    }
