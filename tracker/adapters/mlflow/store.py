"""Writes batches to MLflow; a repeated write duplicates nothing.

One MLflow run is one training run. A checkpoint is a LoggedModel, and its metrics are points of the run at its step:
the same rows, written once, are the run's curves and the model's row in the Models tab. Objects that MLflow would
create twice are first searched for by a tag; repeated metrics are the same rows, because their times are the same.
"""

import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import LoggedModelOutput, Metric, Run, RunTag

from eval_jobs.errors import TrackerError
from eval_jobs.limits import MLFLOW_ANSWERS
from tracker.adapters.bounded_http import conversation
from tracker.adapters.database.codec import to_json
from tracker.adapters.mlflow import runs
from tracker.adapters.mlflow.address import check_reachable, public
from tracker.adapters.mlflow.champions import own_registered_name, send_champions
from tracker.adapters.mlflow.client import connect
from tracker.adapters.mlflow.errors_sql import mapped_mlflow_errors
from tracker.adapters.mlflow.facts import send_facts
from tracker.adapters.mlflow.models import write_model
from tracker.adapters.mlflow.sweeps import dataset_input, send_sweep
from tracker.adapters.mlflow.view import VIEW_TAG, note_links, view_state
from tracker.adapters.samples.table_parquet import write_samples
from tracker.domain.records import tracking
from tracker.domain.tracking.batch import timestamp_ms, verdict_tags
from tracker.domain.tracking.verdict_note import (
    incidents_note,
    incidents_tag,
    merge,
    read_newest,
    render,
    with_section,
    write_newest,
)

ITEM_S = 600.0
"""Longest time that writing one item takes, with the files that it uploads."""
CLOSE_S = 5.0
"""Longest time that `close` takes to show the runs as finished."""
NEWEST_TAG = "tracker.verdicts"
NOTE_TAG = "mlflow.note.content"
INCIDENT_TAGS = {
    tracking.IncidentKind.LOSS: str(tracking.IncidentKind.LOSS),
    tracking.IncidentKind.TRAINING: "tracker.incidents",
}
_TITLES = {tracking.IncidentKind.LOSS: "Open losses", tracking.IncidentKind.TRAINING: "Incidents of the training"}
KIND = "custom_model_development"
"""Without it MLflow's pages show the experiment as one about agents, and call checkpoints "agent versions"."""

_OfTraining = tracking.CurveBatch | tracking.LiveCurveBatch | tracking.FactsBatch


class MlflowStore:
    """`tracker.ports.TrackingSink` on MLflow; connects when the first item is sent."""

    def __init__(
        self, settings: runs.TrackingSettings, *, open_client: Callable[[str], MlflowClient] = connect
    ) -> None:
        self._settings = settings
        self._open_client = open_client
        self._client: MlflowClient | None = None
        self._follows = False
        self._running = set[str]()
        """MLflow ids of the runs that are shown as running."""

    def follow(self) -> None:
        """Show our runs as running until `close`; see `ports.TrackingSink`."""
        self._follows = True

    def send(self, item: tracking.TrackingItem) -> None:
        """Write all of `item`; see `ports.TrackingSink`.

        Raises:
            TrackingUnreachable, StoreError: as in the port.
            ConfigError: the settings name a run or an experiment that cannot be used.
        """
        try:
            with mapped_mlflow_errors(public(self._settings.uri)), conversation(ITEM_S, MLFLOW_ANSWERS):
                client = self._connected()
                run = runs.find_or_create_run(client, self._settings, item)
                key = runs.run_key(self._settings, tracking.run_of(item))
                if isinstance(item, tracking.SweepBatch):
                    send_sweep(client, run, item, key)
                elif isinstance(item, tracking.ChampionBatch):
                    if self._settings.has_aliases:
                        send_champions(client, run, item, key)
                elif isinstance(item, tracking.TrackingBatch):
                    links = _links(client, self._settings, run.experiment_id, item.checkpoint.run_id)
                    _send_batch(client, run, item, key, links)
                elif isinstance(item, tracking.IncidentsBatch):
                    links = _links(client, self._settings, run.experiment_id, item.run_id)
                    _send_incidents(client, run, item, links)
                elif not run.joined:
                    _send_training(client, run, item)
                self._show_running(client, run)
        except TrackerError:
            self._client = None  # the store may be another one when it is reachable again
            raise

    def close(self) -> None:
        """Show the runs as finished, and drop the connection; the next item opens another."""
        client, running, self._client, self._running = self._client, self._running, None, set()
        if client is None:
            return
        with (
            suppress(TrackerError),
            mapped_mlflow_errors(public(self._settings.uri)),
            conversation(CLOSE_S, MLFLOW_ANSWERS),
        ):
            for run_id in running:
                _end(client, run_id, client.get_run(run_id).info.end_time)

    def _show_running(self, client: MlflowClient, run: runs.TrackedRun) -> None:
        if self._follows and not run.joined:
            client.update_run(run.run_id, "RUNNING")
            self._running.add(run.run_id)

    def _connected(self) -> MlflowClient:
        if self._client is None:
            self._client = self._open_client(self._settings.uri)
        else:
            check_reachable(self._settings.uri)  # fails within seconds; the client itself would retry for longer
        return self._client


def refresh_note(client: MlflowClient, settings: runs.TrackingSettings, run_id: str) -> None:
    """Update the links in the description of a training run, if it has one.

    Raises:
        ConfigError, MlflowException: as `runs.existing_run`.
    """
    run = runs.existing_run(client, settings, run_id)
    newest = read_newest(run.data.tags.get(NEWEST_TAG, "")) if run is not None else ()
    if run is not None and newest:
        note = _note(run.data.tags, _links(client, settings, run.info.experiment_id, run_id), newest)
        client.set_tag(run.info.run_id, NOTE_TAG, note)


def _links(client: MlflowClient, settings: runs.TrackingSettings, experiment_id: str, run_id: str) -> str:
    name = own_registered_name(client, run_id, runs.run_key(settings, run_id)) if settings.has_aliases else ""
    samples = client.get_experiment_by_name(runs.samples_experiment(settings))
    return note_links(experiment_id, name, samples.experiment_id if samples is not None else "")


def _note(tags: Mapping[str, str], links: str, newest: tuple[tracking.TrackedVerdict, ...]) -> str:
    parts = [links, render(newest) if newest else ""]
    parts += (incidents_note(_TITLES[kind], tags.get(tag, "")) for kind, tag in INCIDENT_TAGS.items())
    return with_section(tags.get(NOTE_TAG, ""), "\n\n".join(filter(None, parts)))


def _send_incidents(client: MlflowClient, run: runs.TrackedRun, item: tracking.IncidentsBatch, links: str) -> None:
    """Write the incidents to a tag and into the description, which shows it."""
    tag = INCIDENT_TAGS[item.kind]
    tags = client.get_run(run.run_id).data.tags | {tag: incidents_tag(item.incidents)}
    note = _note(tags, links, read_newest(tags.get(NEWEST_TAG, "")))
    client.log_batch(run.run_id, tags=[RunTag(tag, tags[tag]), RunTag(NOTE_TAG, note)])


def _send_training(client: MlflowClient, run: runs.TrackedRun, item: _OfTraining) -> None:
    if isinstance(item, tracking.FactsBatch):
        send_facts(client, run, item)
        return
    if not item.points:
        return
    client.log_batch(run.run_id, metrics=[Metric(p.key, p.value, p.timestamp_ms, p.step) for p in item.points])
    if isinstance(item, tracking.LiveCurveBatch):  # else the results of its checkpoint follow
        _end(client, run.run_id, item.at_ms)
    _refresh_view(client, run)


def _send_batch(
    client: MlflowClient, run: runs.TrackedRun, batch: tracking.TrackingBatch, key: str, links: str
) -> None:
    client.log_inputs(run.run_id, datasets=[dataset_input(d) for d in batch.datasets])
    model = write_model(client, run, batch, key)
    _upload(client, run, batch)
    known = client.get_run(run.run_id)
    if model.model_id not in {output.model_id for output in known.outputs.model_outputs}:  # MLflow refuses duplicates
        client.log_outputs(run.run_id, [LoggedModelOutput(model.model_id, batch.checkpoint.step)])
    _refresh_run(client, run, known, batch, links)
    _refresh_view(client, run)


def _upload(client: MlflowClient, run: runs.TrackedRun, batch: tracking.TrackingBatch) -> None:
    """Write one file per benchmark and the report; an existing file is replaced with an equal one."""
    with tempfile.TemporaryDirectory(prefix="tracker-mlflow-") as name:
        folder = Path(name)
        for table in batch.samples:
            write_samples(folder / f"{table.path}.parquet", table.samples)
        report = folder / batch.report_path
        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text(to_json(batch.report), encoding="ascii")
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            client.log_artifact(run.run_id, str(file), str(file.parent.relative_to(folder)))


def _refresh_run(
    client: MlflowClient, run: runs.TrackedRun, known: Run, batch: tracking.TrackingBatch, links: str
) -> None:
    """Update the run's tags and note to the newest verdicts, in whatever order checkpoints arrive."""
    tags = known.data.tags
    newest = merge(read_newest(tags.get(NEWEST_TAG, "")), batch.verdicts, batch.left)
    if newest:
        note = _note(tags, links, newest)
        values = verdict_tags(newest) | {NEWEST_TAG: write_newest(newest), NOTE_TAG: note}
        client.log_batch(run.run_id, tags=[RunTag(k, v) for k, v in values.items() if tags.get(k) != v])
    if not run.joined:
        _end(client, run.run_id, max(timestamp_ms(batch.checkpoint), known.info.end_time or 0))


def _end(client: MlflowClient, run_id: str, ended_ms: int | None) -> None:
    """Mark a run as ended: without a watcher the end of the training is unknown, and "running" for ever is worse."""
    client.set_terminated(run_id, "FINISHED", ended_ms)


def _refresh_view(client: MlflowClient, run: runs.TrackedRun) -> None:
    tags = client.get_experiment(run.experiment_id).tags
    state = view_state(client.get_run(run.run_id).data.metrics, tags.get(VIEW_TAG))
    for tag, value in ((VIEW_TAG, state), (runs.KIND_TAG, tags.get(runs.KIND_TAG) or KIND)):
        if tags.get(tag) != value:
            client.set_experiment_tag(run.experiment_id, tag, value)
