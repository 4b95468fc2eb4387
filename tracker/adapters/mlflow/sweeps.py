"""Writes the results of a sweep to MLflow: one child run of the training run for each target and variant.

MLflow compares runs by parameters and metrics: a variant is a run whose parameters are its settings. A tag identifies
it, so writing it twice creates one run.
"""

import tempfile
from collections.abc import Iterable
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, Run, RunTag

from tracker.adapters.mlflow.runs import OUR_SOURCE, SOURCE_TAG, TrackedRun, the_one
from tracker.adapters.samples.table_parquet import write_samples
from tracker.domain.records.tracking import SweepBatch, TrackedDataset, TrackedMetric

SWEEP_KEY_TAG = "tracker.sweep_key"
PARENT_TAG = "mlflow.parentRunId"


def send_sweep(client: MlflowClient, parent: TrackedRun, batch: SweepBatch, key: str) -> None:
    """Write `batch` as a child run of `parent`; `key` is that of the training run."""
    run = _get_or_create(client, parent, batch, f"{key}-{batch.plan_id}")
    client.log_inputs(run.info.run_id, datasets=[dataset_input(d) for d in batch.datasets])
    client.log_batch(
        run.info.run_id,
        metrics=[metric_of(m, batch.datasets, time_ms=m.timestamp_ms, run_id=run.info.run_id) for m in batch.metrics],
        params=[Param(name, value) for name, value in batch.params.items()],
        tags=[RunTag(name, value) for name, value in batch.tags.items()],
    )
    for tag in run.data.tags:
        if tag.startswith("failed/") and tag not in batch.tags:  # measured successfully since then
            client.delete_tag(run.info.run_id, tag)
    _upload(client, run.info.run_id, batch)
    client.set_terminated(run.info.run_id, "FINISHED", batch.ended_ms)


def metric_of(
    metric: TrackedMetric, datasets: Iterable[TrackedDataset], *, time_ms: int, run_id: str | None = None
) -> Metric:
    """Return a metric for MLflow, with the dataset that it was measured on."""
    digests = {d.name: d.digest for d in datasets}
    return Metric(
        metric.key,
        metric.value,
        time_ms,
        metric.step,
        dataset_name=metric.dataset or None,
        dataset_digest=digests.get(metric.dataset),
        run_id=run_id,
    )


def dataset_input(dataset: TrackedDataset) -> DatasetInput:
    """Return the dataset of a score as an input of an MLflow run."""
    entity = Dataset(name=dataset.name, digest=dataset.digest, source_type="benchmark", source=dataset.source)
    return DatasetInput(entity, [InputTag("mlflow.data.context", "eval")])


def _get_or_create(client: MlflowClient, parent: TrackedRun, batch: SweepBatch, key: str) -> Run:
    found = client.search_runs([parent.experiment_id], f"tags.`{SWEEP_KEY_TAG}` = '{key}'")
    return the_one(client, list(found)) or client.create_run(
        parent.experiment_id,
        start_time=batch.started_ms,
        run_name=batch.run_name,
        # In the same call as the run itself, so that no crash leaves a run that cannot be found again.
        tags={SWEEP_KEY_TAG: key, PARENT_TAG: parent.run_id, SOURCE_TAG: OUR_SOURCE, "tracker.sweep": batch.sweep},
    )


def _upload(client: MlflowClient, run_id: str, batch: SweepBatch) -> None:
    with tempfile.TemporaryDirectory(prefix="tracker-mlflow-") as name:
        for table in batch.samples:
            file = Path(name) / f"{table.path}.parquet"
            write_samples(file, table.samples)
            client.log_artifact(run_id, str(file), "samples")
