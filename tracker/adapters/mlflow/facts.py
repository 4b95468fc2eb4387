"""Writes what the trainer left about a run that the tracker created: parameters, tags, its name, and a colour.

MLflow never changes a parameter: the first value stays, and a tag `changed/NAME` has the newer one with its step.
"""

from collections.abc import Sequence

from mlflow import MlflowClient
from mlflow.entities import Param, Run, RunTag

from tracker.adapters.mlflow.runs import NAME_TAG, TrackedRun
from tracker.domain.records.tracking import FactsBatch
from tracker.domain.tracking.trainer_facts import NamedRun, display_names

TITLE_TAG = "tracker.name"
"""The trainer's name for the run, or ours: what it is called if no other run has the same name."""
COLOUR_TAG = "mlflow.runColor"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""They differ also for colour-blind people. MLflow's own choice gives two runs the same colour at times."""


def send_facts(client: MlflowClient, run: TrackedRun, item: FactsBatch) -> None:
    """Write the facts to `run`, and tell it apart from the other runs of its experiment."""
    known = client.get_run(run.run_id).data
    facts, step = item.facts, item.checkpoint.step
    first = {name: known.params.get(name, value) for name, value in facts.params.items()}
    changed = {f"changed/{k}": f"{v} (step {step})" for k, v in facts.params.items() if first[k] != v}
    title = known.tags.get(TITLE_TAG, item.checkpoint.run_id)
    if title == item.checkpoint.run_id and facts.name:
        title = facts.name  # and it stays: later files may lack the name
    client.log_batch(
        run.run_id,
        params=[Param(name, value) for name, value in first.items()],
        tags=[RunTag(name, value) for name, value in {TITLE_TAG: title, **facts.tags, **changed}.items()],
    )
    runs = list(client.search_runs([run.experiment_id], f"tags.`{TITLE_TAG}` != ''"))
    _name(client, runs)
    _colour(client, runs)


def _name(client: MlflowClient, runs: Sequence[Run]) -> None:
    """Rename runs whose names we chose; names that a person gave them stay."""
    named = [_named(run) for run in runs]
    for run, choices, name in zip(runs, named, display_names(named), strict=True):
        if run.info.run_name != name and run.info.run_name in {*choices.choices(), choices.run_id}:
            client.update_run(run.info.run_id, name=name)


def _colour(client: MlflowClient, runs: Sequence[Run]) -> None:
    used = {run.data.tags.get(COLOUR_TAG) for run in runs}
    free = (colour for colour in COLOURS if colour not in used)
    for run, colour in zip((run for run in runs if COLOUR_TAG not in run.data.tags), free, strict=False):
        client.set_tag(run.info.run_id, COLOUR_TAG, colour)


def _named(run: Run) -> NamedRun:
    tags = run.data.tags
    return NamedRun(name=tags[TITLE_TAG], seed=run.data.params.get("seed", ""), run_id=tags.get(NAME_TAG, ""))
