"""The LoggedModel of a checkpoint: one value of each metric, however often the checkpoint is evaluated.

MLflow keeps all values of a model's metric, accepts one per time, and shows the one that its database returns first. A
model whose values change is therefore replaced: a new one gets the current values, then the old one is deleted.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from mlflow import MlflowClient
from mlflow.entities import LoggedModel, LoggedModelStatus, Metric

from tracker.adapters.mlflow.champions import MODEL_TAG, move_versions
from tracker.adapters.mlflow.runs import TrackedRun
from tracker.adapters.mlflow.sweeps import metric_of
from tracker.domain.records.tracking import TrackedMetric, TrackingBatch

_RECENT_MODELS = 50
"""Models of a run among which unfinished ones are looked for, newest first."""
_NOT_IN_MODEL_NAMES = re.compile(r"[/:.%\"']+")
_MEASURED_TOGETHER = (("bench", "coverage", "truncated"), ("screen", "screen_coverage"))
"""Sections of metric keys: a newer result of a benchmark that lacks one of them has no such value."""


def write_model(client: MlflowClient, run: TrackedRun, batch: TrackingBatch, key: str) -> LoggedModel:
    """Write metrics and tags of `batch` to the run and to the model of its checkpoint; return the model.

    Values that other plans measured at the checkpoint are kept; `key` is the run's `runs.run_key`.
    """
    model_key = f"{key}|{batch.checkpoint.step}|{batch.checkpoint.digest}"
    found = _models(client, run, model_key)
    known = next(iter(found), None)
    rows = _newest_rows(known)
    metrics = [_metric(m, batch, rows.get(m.key)) for m in batch.metrics]
    kept = [row for row in rows.values() if not _is_measured_by(batch, row.key)]
    is_new = known is None or not _has_room(known, [*kept, *metrics])
    model = _create(client, run, batch, model_key) if is_new or known is None else known
    written = [*kept, *metrics] if is_new else metrics
    client.log_batch(run.run_id, metrics=[_of_model(m, model, run) for m in written])
    _write_tags(client, model, {} if known is None else known.tags, batch)
    if model.status != LoggedModelStatus.READY:
        client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
    for other in found:
        if other.model_id != model.model_id:
            move_versions(client, run, batch.checkpoint.run_id, old=other, new=model)
            client.delete_logged_model(other.model_id)
    _delete_unfinished(client, run, model)
    return model


def _models(client: MlflowClient, run: TrackedRun, model_key: str) -> list[LoggedModel]:
    """Return the models of a checkpoint, finished ones first, then the newest."""
    found = client.search_logged_models([run.experiment_id], filter_string=f"tags.`{MODEL_TAG}` = '{model_key}'")
    return sorted(found, key=lambda m: (m.status != LoggedModelStatus.READY, -m.creation_timestamp, m.model_id))


def _create(client: MlflowClient, run: TrackedRun, batch: TrackingBatch, model_key: str) -> LoggedModel:
    checkpoint = batch.checkpoint
    return client.create_logged_model(
        run.experiment_id,
        # The step first: MLflow cuts names to some 20 characters.
        name=_NOT_IN_MODEL_NAMES.sub("-", f"step-{checkpoint.step}-{checkpoint.run_id}"),
        source_run_id=run.run_id,
        model_type="checkpoint",
        params=dict(batch.params),
        tags={MODEL_TAG: model_key},
    )


def _newest_rows(model: LoggedModel | None) -> dict[str, Metric]:
    rows = (model.metrics if model is not None else None) or ()
    return {row.key: row for row in sorted(rows, key=lambda row: int(row.timestamp))}


def _metric(metric: TrackedMetric, batch: TrackingBatch, row: Metric | None) -> Metric:
    """Return the metric with the time of a row of equal value, or with a later time than the row that it replaces."""
    time_ms = metric.timestamp_ms
    if row is not None:
        time_ms = row.timestamp if row.value == metric.value else max(time_ms, row.timestamp + 1)
    return metric_of(metric, batch.datasets, time_ms=time_ms)


def _facts(row: Metric) -> tuple[float, str | None, str | None]:
    return row.value, row.dataset_name or None, row.dataset_digest or None


def _has_room(model: LoggedModel, metrics: Iterable[Metric]) -> bool:
    """Return whether the model's rows are all among `metrics`: only then can the others be added to it."""
    wanted = {m.key: _facts(m) for m in metrics}
    rows = model.metrics or ()
    return len(rows) == len({row.key for row in rows}) and all(wanted.get(row.key) == _facts(row) for row in rows)


def _is_measured_by(batch: TrackingBatch, key: str) -> bool:
    """Return whether a value of that key comes from what `batch` measured, and is outdated if it is not in `batch`."""
    measured = {m.key for m in batch.metrics}
    section, _, name = key.partition("/")
    if section == "perf":
        return any(k.startswith("perf/") for k in measured) or any(t.startswith("failed/probe-") for t in batch.tags)
    together = next((parts for parts in _MEASURED_TOGETHER if section in parts), ())
    return key in measured or any(f"{part}/{name}" in measured for part in together)


def _of_model(metric: Metric, model: LoggedModel, run: TrackedRun) -> Metric:
    return Metric(
        metric.key,
        metric.value,
        metric.timestamp,
        metric.step,
        model_id=model.model_id,
        dataset_name=metric.dataset_name,
        dataset_digest=metric.dataset_digest,
        run_id=run.run_id,
    )


def _write_tags(client: MlflowClient, model: LoggedModel, known: Mapping[str, str], batch: TrackingBatch) -> None:
    repaired = _repaired(known, batch)
    tags = dict(known) | dict(batch.tags)
    client.set_logged_model_tags(model.model_id, {name: tags[name] for name in tags if name not in repaired})
    for tag in repaired & model.tags.keys():
        client.delete_logged_model_tag(model.model_id, tag)


def _repaired(tags: Collection[str], batch: TrackingBatch) -> set[str]:
    """Return the tags of failures that an earlier record had and this one does not have.

    A model also has the tags of other suites of the checkpoint: only failures of what was measured here are repaired.
    """
    measured = [m.key for m in batch.metrics]
    scored = {f"failed/{key.partition('/')[2]}" for key in measured if key.startswith(("bench/", "screen/"))}
    timed = any(key.startswith("perf/") for key in measured)
    return {
        tag for tag in tags if tag not in batch.tags and (tag in scored or (timed and tag.startswith("failed/probe-")))
    }


def _delete_unfinished(client: MlflowClient, run: TrackedRun, model: LoggedModel) -> None:
    """Delete our models, other than `model`, that a slow server created after their requests timed out."""
    newest: Sequence[LoggedModel] = client.search_logged_models(
        [run.experiment_id],
        filter_string=f"source_run_id = '{run.run_id}'",  # servers disagree on how a filter names a status
        max_results=_RECENT_MODELS,
        order_by=[{"field_name": "creation_timestamp", "ascending": False}],
    )
    for other in newest:
        is_pending = other.status == LoggedModelStatus.PENDING
        if is_pending and MODEL_TAG in other.tags and other.model_id != model.model_id:
            client.delete_logged_model(other.model_id)
