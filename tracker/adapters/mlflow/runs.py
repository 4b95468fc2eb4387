"""Finds the MLflow run for the results of a training run, and creates one only if there is none.

In this order: the run in the settings; the run found earlier (by its tag); the trainer's own run (by its output folder,
verified by its losses); a new run. MLflow chooses run ids, so only a tag makes a run findable. The search is repeated
for every item: a run may have been deleted meanwhile, or created twice by a slow server. A run that was created for
live curves is replaced if the first checkpoint shows which run is the trainer's.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from mlflow import MlflowClient
from mlflow.entities import Experiment, Run, ViewType
from mlflow.exceptions import MlflowException

from eval_jobs.errors import ConfigError
from eval_jobs.host.paths import canonical
from eval_jobs.identity import content_hash
from tracker.adapters.mlflow.address import sqlite_path
from tracker.domain.records.tracking import CurveBatch, LiveCurveBatch, LiveItem, TrackingBatch, TrackingItem, run_of
from tracker.domain.tracking.batch import timestamp_ms
from tracker.domain.tracking.trainer_run import LOSS_KEY, RunCandidate, is_trainers_run, may_be_trainers_run

KEY_TAG = "tracker.run_key"
NAME_TAG = "tracker.run"
LIVE_TAG = "tracker.live_only"
"""Of a run that was created before any checkpoint could show which run is the trainer's."""
SOURCE_TAG = "mlflow.source.name"
KIND_TAG = "mlflow.experimentKind"
OUR_SOURCE = "checkpoint-tracker"

TRAINER_LOSS_KEYS = ("loss", "train_loss", LOSS_KEY)
"""Names under which trainers log their loss; the first one that a run has is used."""

MAX_CANDIDATES = 20


@dataclass(frozen=True, kw_only=True)
class TrackingSettings:
    """Where results go."""

    uri: str
    """`http://host:port`, or `sqlite:////absolute/path.db` for a store without a server."""
    experiment: str
    """Experiment for runs that the tracker creates."""
    run_id: str = ""
    """MLflow id of the trainer's own run, if it is known; empty: it is searched for."""
    output_dir: str = ""
    """Absolute path of the folder that the trainer writes to."""
    has_aliases: bool = True
    """Whether the best checkpoints get aliases in the model registry."""


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """The MLflow run of one training run."""

    run_id: str
    experiment_id: str
    joined: bool
    """Whether it is the trainer's own run, whose curves, status and times are not changed."""


def find_or_create_run(client: MlflowClient, settings: TrackingSettings, item: TrackingItem) -> TrackedRun:
    """Return the run that `item` belongs to.

    Raises:
        ConfigError: the run or the experiment that the settings name cannot be used.
        MlflowException: as the client.
    """
    known = existing_run(client, settings, run_of(item))
    if known is not None and (isinstance(item, LiveItem) or not _is_live_only(known)):
        return _tracked(known)
    trainers = next(_trainers_runs(client, settings, item), None)
    if trainers is not None and isinstance(item, LiveItem):
        return TrackedRun(run_id=trainers.info.run_id, experiment_id=trainers.info.experiment_id, joined=True)
    key = run_key(settings, run_of(item))
    if trainers is not None:
        return _join(client, trainers, known, key)
    if known is None:
        return _tracked(_create_run(client, settings, item, key))
    if isinstance(item, TrackingBatch):  # its results stay there
        client.delete_tag(known.info.run_id, LIVE_TAG)
    return _tracked(known)


def _join(client: MlflowClient, trainers: Run, known: Run | None, key: str) -> TrackedRun:
    # The tag identifies it from now on, even if the trainer starts another run in the same folder.
    client.set_tag(trainers.info.run_id, KEY_TAG, key)
    if known is not None:  # the trainer's run has the same curves
        client.delete_run(known.info.run_id)
    return _tracked(trainers)


def _is_live_only(run: Run) -> bool:
    return LIVE_TAG in run.data.tags


def existing_run(client: MlflowClient, settings: TrackingSettings, run_id: str) -> Run | None:
    """Return the MLflow run with the results of a training run; None: nothing was written yet.

    Raises:
        ConfigError, MlflowException: as `find_or_create_run`.
    """
    if settings.run_id:
        return _named_run(client, settings.run_id)
    return the_one(client, _search(client, f"tags.`{KEY_TAG}` = '{run_key(settings, run_id)}'"))


def run_key(settings: TrackingSettings, run_id: str) -> str:
    """Return the key of a training run in a store that many users share: a hash of its name and its folder."""
    return content_hash([run_id, canonical(settings.output_dir)])


def the_one(client: MlflowClient, found: list[Run]) -> Run | None:
    """Return the run with results among those with our tag, and delete our own empty ones.

    A slow server may create a run after its request timed out and another run was created.
    """
    ranked = sorted(found, key=lambda run: (_is_live_only(run), not run.data.metrics, run.info.run_id))
    for run in ranked[1:]:
        is_replaced = _is_live_only(run) and not _is_live_only(ranked[0])
        if not _tracked(run).joined and (is_replaced or not run.data.metrics):
            client.delete_run(run.info.run_id)
    return ranked[0] if ranked else None


def samples_experiment(settings: TrackingSettings) -> str:
    """Return the name of the experiment for the side-by-side comparison of samples."""
    return f"{settings.experiment}/samples"


def get_or_create_experiment(client: MlflowClient, settings: TrackingSettings) -> Experiment:
    """Return the experiment that the settings name.

    Raises:
        ConfigError: it was deleted.
        MlflowException: as the client.
    """
    known = client.get_experiment_by_name(settings.experiment)
    if known is None:
        location, file = None, sqlite_path(settings.uri)
        if file is not None:  # MLflow's default is the folder where a process started
            location = (file.parent / "mlartifacts").absolute().as_uri()
        client.create_experiment(settings.experiment, artifact_location=location)
        known = client.get_experiment_by_name(settings.experiment)
    if known.lifecycle_stage != "active":
        raise ConfigError(
            f"the MLflow experiment {settings.experiment!r} was deleted",
            hint="restore it with `mlflow experiments restore`, or set tracking.experiment to another name",
        )
    return known


def _tracked(run: Run) -> TrackedRun:
    joined = run.data.tags.get(SOURCE_TAG) != OUR_SOURCE
    return TrackedRun(run_id=run.info.run_id, experiment_id=run.info.experiment_id, joined=joined)


def _named_run(client: MlflowClient, run_id: str) -> Run:
    hint = "fix tracking.run_id, or remove it to find the run by its output folder"
    try:
        run = client.get_run(run_id)
    except MlflowException as error:
        if error.error_code not in {"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"}:
            raise
        raise ConfigError(f"no run {run_id!r} in MLflow", hint=hint) from error
    if run.info.lifecycle_stage != "active":
        raise ConfigError(f"the MLflow run {run_id} was deleted", hint=f"restore it in MLflow, or {hint}")
    return run


def _search(client: MlflowClient, filter_string: str) -> list[Run]:
    experiments = [e.experiment_id for e in client.search_experiments(view_type=ViewType.ACTIVE_ONLY)]
    return list(
        client.search_runs(
            experiments, filter_string, order_by=["attributes.start_time DESC"], max_results=MAX_CANDIDATES
        )
    )


def _trainers_runs(client: MlflowClient, settings: TrackingSettings, item: TrackingItem) -> Iterator[Run]:
    """Yield runs that wrote the checkpoint, or may have, newest first: a resumed training may have several."""
    is_live = isinstance(item, LiveItem)
    spelled = {settings.output_dir, _folder_of(item)} - {""}
    folders = spelled | set(map(canonical, spelled))
    losses = _losses_of(item)
    names = filter({"'", '"'}.isdisjoint, {PurePosixPath(folder).name for folder in folders})
    for name in (*names, ""):  # last: any name, because the trainer's path may be a link
        for run in _search(client, f"params.output_dir LIKE '%{name}%'"):
            if run.data.tags.get(SOURCE_TAG) == OUR_SOURCE:
                continue
            is_one = may_be_trainers_run if is_live else is_trainers_run
            if is_one(_candidate(client, run), sorted(folders), _moment_ms(item), losses):
                yield run


def _losses_of(item: TrackingItem) -> dict[int, float]:
    if not isinstance(item, CurveBatch | LiveCurveBatch):
        return {}
    known = dict(item.losses) if isinstance(item, CurveBatch) else {}
    return known | {p.step: p.value for p in item.points if p.key == LOSS_KEY}


def _folder_of(item: TrackingItem) -> str:
    return "" if isinstance(item, LiveItem) else str(Path(item.checkpoint.source_uri).parent)


def _moment_ms(item: TrackingItem) -> int:
    return item.at_ms if isinstance(item, LiveItem) else timestamp_ms(item.checkpoint)


def _candidate(client: MlflowClient, run: Run) -> RunCandidate:
    key = next((k for k in TRAINER_LOSS_KEYS if k in run.data.metrics), None)
    losses: dict[int, list[float]] = {}
    for point in client.get_metric_history(run.info.run_id, key) if key else ():
        losses.setdefault(point.step, []).append(point.value)
    output_dir = run.data.params["output_dir"]
    return RunCandidate(
        output_dir=canonical(output_dir) if PurePosixPath(output_dir).is_absolute() else output_dir,
        started_ms=run.info.start_time,
        ended_ms=run.info.end_time,
        losses=losses,
    )


def _create_run(client: MlflowClient, settings: TrackingSettings, item: TrackingItem, key: str) -> Run:
    experiment = get_or_create_experiment(client, settings)
    return client.create_run(
        experiment.experiment_id,
        start_time=_moment_ms(item),
        run_name=run_of(item),
        # In the same call as the run itself, so that no crash leaves a run that cannot be found again.
        tags={
            KEY_TAG: key,
            NAME_TAG: run_of(item),
            SOURCE_TAG: OUR_SOURCE,
            "tracker.output_dir": settings.output_dir,
            **({LIVE_TAG: "true"} if isinstance(item, LiveItem) else {}),
        },
    )
