"""Moves the aliases of MLflow's model registry: `champion` and `best-<benchmark>` point to checkpoints of a run.

A checkpoint that becomes a champion is registered once, as a version made from its LoggedModel; the reasons are tags of
the version. A registered model of that name that belongs to another owner is not changed.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from mlflow import MlflowClient
from mlflow.entities import LoggedModel
from mlflow.entities.model_registry import ModelVersion, RegisteredModel
from mlflow.environment_variables import MLFLOW_TRACKING_URI
from mlflow.exceptions import MlflowException

from eval_jobs.errors import StoreError
from tracker.adapters.mlflow.runs import KEY_TAG, TrackedRun
from tracker.domain.records.tracking import Champion, ChampionBatch

MODEL_TAG = "tracker.checkpoint_key"
"""Tag of a LoggedModel and of a version that identifies the checkpoint."""
REASON_TAG = "tracker.reason"

DESCRIPTION = "Best checkpoints of a training run, selected by checkpoint-tracker."

# MLflow refuses the first two; a quote would end the name in a search for versions.
_NOT_IN_NAMES = re.compile(r"[/:'\"]+")
_TAKEN, _UNKNOWN = "RESOURCE_ALREADY_EXISTS", "RESOURCE_DOES_NOT_EXIST"


def send_champions(client: MlflowClient, run: TrackedRun, batch: ChampionBatch, key: str) -> None:
    """Register champions that are not registered yet, and set their aliases; `key` is the run's `runs.run_key`.

    Raises:
        StoreError: a champion's LoggedModel does not exist yet, or the registered model belongs to another owner.
    """
    model = _registered(client, batch.checkpoint.run_id, key)
    known = {v.tags.get(MODEL_TAG, ""): v for v in client.search_model_versions(f"name = '{model.name}'")}
    aliases: Mapping[str, str] = model.aliases
    for champion in batch.champions:
        checkpoint_key = f"{key}|{champion.checkpoint.step}|{champion.checkpoint.digest}"
        if checkpoint_key not in known:
            known[checkpoint_key] = _version(client, run, model.name, checkpoint_key)
        _name(client, model.name, known[checkpoint_key], champion, aliases)
        _take_reason(client, champion, [one for key, one in known.items() if key != checkpoint_key])


def _take_reason(client: MlflowClient, champion: Champion, others: Iterable[ModelVersion]) -> None:
    """Remove the reason of an alias from the versions that do not have it any more."""
    tag = f"{REASON_TAG}/{champion.alias}"
    for version in others:
        if tag in version.tags:
            client.delete_model_version_tag(version.name, version.version, tag)


def registered_name(run_id: str) -> str:
    """Return the name of the registered model of a run."""
    return _NOT_IN_NAMES.sub("-", run_id)


def own_registered_name(client: MlflowClient, run_id: str, key: str) -> str:
    """Return the name of a run's registered model, existing or not; empty if the name belongs to another owner."""
    name = registered_name(run_id)
    try:
        tags = client.get_registered_model(name).tags
    except MlflowException as error:
        if error.error_code != _UNKNOWN:
            raise
        return name
    if tags.get(KEY_TAG) == key:
        return name
    return ""


def move_versions(client: MlflowClient, run: TrackedRun, run_id: str, *, old: LoggedModel, new: LoggedModel) -> None:
    """Replace the versions that were made from `old` by versions of `new`, with their tags and aliases."""
    name = registered_name(run_id)
    versions: list[ModelVersion] = client.search_model_versions(f"name = '{name}'")
    for version in versions:
        if version.source == _source(old.model_id) and version.tags.get(MODEL_TAG) == old.tags[MODEL_TAG]:
            key = version.tags[MODEL_TAG]
            moved = next((v for v in versions if v.source == _source(new.model_id)), None)
            moved = moved or _create_version(client, run, name, new.model_id, key)
            for tag, value in version.tags.items():
                client.set_model_version_tag(name, moved.version, tag, value)
            for alias, of_version in client.get_registered_model(name).aliases.items():
                if str(of_version) == str(version.version):
                    client.set_registered_model_alias(name, alias, moved.version)
            client.delete_model_version(name, version.version)


def _registered(client: MlflowClient, run_id: str, key: str) -> RegisteredModel:
    name = registered_name(run_id)
    try:
        client.create_registered_model(name, tags={KEY_TAG: key}, description=DESCRIPTION)
    except MlflowException as error:
        if error.error_code != _TAKEN:
            raise
    model = client.get_registered_model(name)
    if model.tags.get(KEY_TAG) != key:
        raise StoreError(
            f"the registered MLflow model {name} does not belong to this run",
            hint="rename the model or the run, or set tracking.aliases = false",
        )
    return model


def _version(client: MlflowClient, run: TrackedRun, name: str, checkpoint_key: str) -> ModelVersion:
    found = client.search_logged_models([run.experiment_id], filter_string=f"tags.`{MODEL_TAG}` = '{checkpoint_key}'")
    if not found:
        raise StoreError(
            f"cannot set an alias: no model of step {checkpoint_key.split('|')[1]} in MLflow yet",
            hint="wait until its results are sent; the alias is set afterwards",
        )
    return _create_version(client, run, name, found[0].model_id, checkpoint_key)


def _create_version(
    client: MlflowClient, run: TrackedRun, name: str, model_id: str, checkpoint_key: str
) -> ModelVersion:
    with _as_default(client.tracking_uri):
        return client.create_model_version(
            name,
            source=_source(model_id),
            run_id=run.run_id,
            model_id=model_id,
            tags={MODEL_TAG: checkpoint_key},
            description=f"step {checkpoint_key.split('|')[1]}",
            await_creation_for=0,  # it exists immediately; waiting writes a log line
        )


def _source(model_id: str) -> str:
    return f"models:/{model_id}"


@contextmanager
def _as_default(uri: str) -> Iterator[None]:
    """Make `uri` MLflow's default store: without a server, `models:/` is resolved there, not in the client's store."""
    variable = MLFLOW_TRACKING_URI.name
    before = os.environ.get(variable)
    os.environ[variable] = uri
    try:
        yield
    finally:
        os.environ.pop(variable)
        if before is not None:
            os.environ[variable] = before


def _name(
    client: MlflowClient, name: str, version: ModelVersion, champion: Champion, aliases: Mapping[str, str]
) -> None:
    tag = f"{REASON_TAG}/{champion.alias}"
    if version.tags.get(tag) != champion.reason:
        client.set_model_version_tag(name, version.version, tag, champion.reason)
    if str(aliases.get(champion.alias, "")) != str(version.version):
        client.set_registered_model_alias(name, champion.alias, version.version)
