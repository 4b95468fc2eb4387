"""What stands in an MLflow store, reduced to what may not depend on when and how often anybody was killed."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

MEASURED = ("perf/", "cost/")
"""Metrics that no second run would repeat: that they are there is all that can be compared."""
MODEL_METRICS = ("bench/", "coverage/", "truncated/", *MEASURED)

Key = tuple[int, str]
"""Step and digest of a checkpoint."""


@dataclass(frozen=True, kw_only=True)
class Store:
    """One store, seen by a person."""

    runs: tuple[str, ...]
    models: Mapping[Key, int]
    """How many of each there are."""
    metrics: Mapping[tuple[Key, str], tuple[float | None, ...]]
    """Model and metric -> every value that was ever written, the newest last."""
    curves: Mapping[tuple[str, int, float], int]
    """Key, step and value of each point of the training curves -> how often it is there."""
    tags: Mapping[tuple[Key, str], str]
    inputs: Mapping[tuple[str, str], int]
    """Type and name of what the run was given or gave -> how often it is listed."""
    files: frozenset[str]


def read_store(state: Path) -> Store:
    """Read the store of a round's state folder."""
    with closing(sqlite3.connect(state / "mlflow.db")) as connection:
        params: dict[str, dict[str, str]] = defaultdict(dict)
        for model, name, value in connection.execute(
            "SELECT model_id, param_key, param_value FROM logged_model_params"
        ):
            params[model][name] = value
        keys = {model: (int(values["step"]), values["digest"]) for model, values in params.items()}
        return Store(
            runs=tuple(name for (name,) in connection.execute("SELECT name FROM runs ORDER BY name")),
            models=Counter(keys[model] for (model,) in connection.execute("SELECT model_id FROM logged_models")),
            metrics=_model_metrics(connection, keys),
            curves=_curves(connection),
            tags={
                (keys[model], name): value
                for model, name, value in connection.execute(
                    "SELECT model_id, tag_key, tag_value FROM logged_model_tags"
                )
                if not name.startswith(("verdict", "mlflow.modelVersions"))  # the second is set by servers only
            },
            inputs=_inputs(connection, keys),
            files=frozenset(str(p.relative_to(state)).partition("/artifacts/")[2] for p in _files(state)),
        )


# --- private


def _files(state: Path) -> Iterable[Path]:
    return (path for path in (state / "mlartifacts").rglob("*") if path.is_file())


def _model_metrics(
    connection: sqlite3.Connection, keys: Mapping[str, Key]
) -> dict[tuple[Key, str], tuple[float | None, ...]]:
    rows = connection.execute(
        "SELECT model_id, metric_name, metric_value FROM logged_model_metrics ORDER BY metric_timestamp_ms"
    )
    found: dict[tuple[Key, str], tuple[float | None, ...]] = {}
    for model, name, value in rows:
        place = (keys[model], name)
        found[place] = (*found.get(place, ()), None if name.startswith(MEASURED) else value)
    return found


def _curves(connection: sqlite3.Connection) -> dict[tuple[str, int, float], int]:
    rows = connection.execute("SELECT key, step, value FROM metrics")
    return Counter((key, step, value) for key, step, value in rows if not key.startswith(MODEL_METRICS))


def _inputs(connection: sqlite3.Connection, keys: Mapping[str, Key]) -> dict[tuple[str, str], int]:
    names: dict[str, str] = dict(connection.execute("SELECT dataset_uuid, name FROM datasets"))
    names |= {model: f"{step} {digest}" for model, (step, digest) in keys.items()}
    rows = connection.execute("SELECT source_type, source_id, destination_type, destination_id FROM inputs")
    return Counter(
        (f"{source_type} {destination_type}", names.get(source) or names.get(destination, ""))
        for source_type, source, destination_type, destination in rows
    )
