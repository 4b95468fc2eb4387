"""Finds the checkpoint that a version in MLflow's model registry was made from.

A version refers to its LoggedModel, whose tag, written by `store`, identifies the checkpoint.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

from mlflow import MlflowClient
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException

from eval_jobs.errors import ConfigError
from eval_jobs.limits import MLFLOW_ANSWERS
from tracker.adapters.bounded_http import conversation
from tracker.adapters.mlflow.address import public
from tracker.adapters.mlflow.champions import MODEL_TAG
from tracker.adapters.mlflow.client import connect
from tracker.adapters.mlflow.errors_sql import mapped_mlflow_errors
from tracker.adapters.mlflow.runs import TrackingSettings, run_key

SCHEME = "models:/"
RESPONSE_S = 10.0
"""Longest time of all requests for one version: a watcher waits for them when a sweep begins."""

_NAME = re.compile(r"models:/(?P<name>[^/@]+)(@(?P<alias>[^/@]+)|/(?P<version>[0-9]+))")
_UNKNOWN = frozenset({"RESOURCE_DOES_NOT_EXIST", "NOT_FOUND", "INVALID_PARAMETER_VALUE"})


@dataclass(frozen=True, kw_only=True)
class RegisteredCheckpoint:
    """The checkpoint behind a version, as far as the registry identifies it."""

    run_id: str | None
    """Its run; None: none of the given runs."""
    step: int
    digest: str


def registered_checkpoint(settings: TrackingSettings, reference: str, runs: Collection[str]) -> RegisteredCheckpoint:
    """Return the checkpoint that `reference` refers to.

    `reference`: `models:/NAME@ALIAS` or `models:/NAME/VERSION`; `runs`: candidates for its run.

    Raises:
        ConfigError: the reference is invalid, there is no such version, or it was not made from a tracked checkpoint.
        TrackingUnreachable: the registry does not respond.
    """
    match = _NAME.fullmatch(reference)
    if match is None:
        raise ConfigError(f"invalid model version {reference!r}", hint="use models:/NAME@ALIAS or models:/NAME/VERSION")
    with mapped_mlflow_errors(public(settings.uri)), conversation(RESPONSE_S, MLFLOW_ANSWERS):
        client = connect(settings.uri)
        version = _version(client, reference, match)
        key = _checkpoint_key(client, version)
    parts = key.split("|")
    if len(parts) != 3 or not parts[1].isdecimal():
        what = f"{reference} (version {version.version}) is not the model of an evaluated checkpoint"
        raise ConfigError(what, hint="register the model of a checkpoint: MLflow's Models tab lists its id")
    own = next((run for run in runs if run_key(settings, run) == parts[0]), None)
    return RegisteredCheckpoint(run_id=own, step=int(parts[1]), digest=parts[2])


def _version(client: MlflowClient, reference: str, match: re.Match[str]) -> ModelVersion:
    try:
        if match["alias"]:
            return client.get_model_version_by_alias(match["name"], match["alias"])
        return client.get_model_version(match["name"], match["version"])
    except MlflowException as error:
        if error.error_code not in _UNKNOWN:
            raise
        hint = "see the Models page of MLflow for names, versions and aliases"
        raise ConfigError(f"no {reference} in the MLflow registry", hint=hint) from error


def _checkpoint_key(client: MlflowClient, version: ModelVersion) -> str:
    """Return the tag of the model that a version was made from; empty: there is no model, or it has no tag."""
    model_id = version.model_id or _id_in(version.source)
    if not model_id:
        return ""
    try:
        return str(client.get_logged_model(model_id).tags.get(MODEL_TAG, ""))
    except MlflowException as error:
        if error.error_code not in _UNKNOWN:
            raise
        return ""


def _id_in(source: str | None) -> str:
    if (source or "").startswith(f"{SCHEME}m-"):
        return (source or "").removeprefix(SCHEME)
    return ""
