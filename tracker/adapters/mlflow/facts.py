"""Writes what the trainer left about a run that the tracker created: parameters, tags and its name.

MLflow never changes a parameter: the first value stays, and a tag `changed/NAME` has the newer one with its step.
"""

from mlflow import MlflowClient
from mlflow.entities import Param, Run, RunTag

from tracker.adapters.mlflow.runs import NAME_TAG, TrackedRun
from tracker.domain.records.tracking import FactsBatch
from tracker.domain.tracking.trainer_facts import NamedRun, display_names

TITLE_TAG = "tracker.name"
"""The trainer's name for the run, or ours: what it is called if no other run has the same name."""


def send_facts(client: MlflowClient, run: TrackedRun, item: FactsBatch) -> None:
    """Write the facts to `run`, and give it and the other runs of its experiment names that tell them apart."""
    known = client.get_run(run.run_id).data
    facts, step = item.facts, item.checkpoint.step
    first = {name: known.params.get(name, value) for name, value in facts.params.items()}
    changed = {f"changed/{k}": f"{v} (step {step})" for k, v in facts.params.items() if first[k] != v}
    # Later files may lack the name: it is in a file that is rotated with the checkpoint.
    title = {TITLE_TAG: facts.name or known.tags.get(TITLE_TAG, item.checkpoint.run_id)}
    client.log_batch(
        run.run_id,
        params=[Param(name, value) for name, value in first.items()],
        tags=[RunTag(name, value) for name, value in (dict(facts.tags) | changed | title).items()],
    )
    _name_runs(client, run.experiment_id)


# --- private


def _name_runs(client: MlflowClient, experiment_id: str) -> None:
    """Rename runs whose names we chose; names that a person gave them stay."""
    runs: list[Run] = list(client.search_runs([experiment_id], f"tags.`{TITLE_TAG}` != ''"))
    named = [_named(run) for run in runs]
    for run, choices, name in zip(runs, named, display_names(named), strict=True):
        if run.info.run_name != name and run.info.run_name in {*choices.choices(), choices.run_id}:
            client.update_run(run.info.run_id, name=name)


def _named(run: Run) -> NamedRun:
    tags = run.data.tags
    return NamedRun(name=tags[TITLE_TAG], seed=run.data.params.get("seed", ""), run_id=tags.get(NAME_TAG, ""))
