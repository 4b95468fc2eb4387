"""The aliases of MLflow's registry, in a real store: they follow the best block of checkpoints."""

from dataclasses import replace
from pathlib import Path

import pytest
from mlflow import MlflowClient

from eval_jobs.errors import StoreError
from eval_jobs.types import Checkpoint
from tests.fakes.history import FakeHistory
from tests.mlflow_stores import EXPERIMENT, MlflowFiles
from tests.records import forgetting_run
from tracker.adapters.mlflow.registry import registered_checkpoint
from tracker.adapters.mlflow.store import MlflowStore
from tracker.domain.best.choice import champions_of
from tracker.domain.records.tracking import Champion, ChampionBatch
from tracker.domain.tracking.batch import tracking_batch

RUN = forgetting_run(checkpoints=6, samples=30, trouble=False)
CHECKPOINTS = [record.plan.checkpoint for record in RUN.records]


@pytest.fixture
def files(tmp_path: Path) -> MlflowFiles:
    return MlflowFiles(tmp_path)


def sent(files: MlflowFiles, count: int = len(CHECKPOINTS)) -> MlflowStore:
    """Return a store that holds so many checkpoints."""
    store = MlflowStore(files.settings())
    for record, report in list(zip(RUN.records, RUN.reports, strict=True))[:count]:
        store.send(tracking_batch(record, report))
    return store


def naming(*champions: tuple[str, Checkpoint]) -> ChampionBatch:
    named = tuple(
        Champion(alias=alias, checkpoint=c, plan_id="p", reason=f"step {c.step} is best") for alias, c in champions
    )
    return ChampionBatch(checkpoint=CHECKPOINTS[-1], champions=named)


def aliases(client: MlflowClient) -> dict[str, str]:
    """Return the tag of the checkpoint behind each alias."""
    found: dict[str, str] = {}
    for alias in client.get_registered_model(EXPERIMENT).aliases:
        version = client.get_model_version_by_alias(EXPERIMENT, alias)
        found[alias] = str(client.get_logged_model(version.source.removeprefix("models:/")).params["step"])
    return found


def note_of(client: MlflowClient) -> str:
    """Return the description of the only run."""
    (run,) = client.search_runs([client.get_experiment_by_name(EXPERIMENT).experiment_id])
    return str(run.data.tags["mlflow.note.content"])


def test_aliases_name_checkpoints_and_move(files: MlflowFiles) -> None:
    store, client = sent(files), files.client()
    store.send(naming(("champion", CHECKPOINTS[0]), ("best-sums", CHECKPOINTS[1])))
    assert aliases(client) == {"champion": "100", "best-sums": "200"}
    store.send(naming(("champion", CHECKPOINTS[1]), ("best-sums", CHECKPOINTS[1])))
    assert aliases(client) == {"champion": "200", "best-sums": "200"}
    assert len(client.search_model_versions(f"name = '{EXPERIMENT}'")) == 2
    tags = client.get_model_version_by_alias(EXPERIMENT, "champion").tags
    assert tags["tracker.reason/champion"] == "step 200 is best"
    (left,) = [v for v in client.search_model_versions(f"name = '{EXPERIMENT}'") if v.tags != tags]
    assert not [tag for tag in left.tags if tag.startswith("tracker.reason/")]


def test_sending_again_changes_nothing(files: MlflowFiles) -> None:
    store, client = sent(files), files.client()
    batch = naming(("champion", CHECKPOINTS[0]))
    for _ in range(2):
        store.send(batch)
    MlflowStore(files.settings()).send(batch)
    assert [v.version for v in client.search_model_versions(f"name = '{EXPERIMENT}'")] == [1]


def test_an_alias_leads_back_to_its_checkpoint(files: MlflowFiles) -> None:
    sent(files).send(naming(("champion", CHECKPOINTS[2])))
    found = registered_checkpoint(files.settings(), f"models:/{EXPERIMENT}@champion", [EXPERIMENT])
    assert (found.run_id, found.step, found.digest) == (EXPERIMENT, 300, CHECKPOINTS[2].digest)


def test_an_alias_of_what_is_not_sent_yet_is_sent_later(files: MlflowFiles) -> None:
    store = sent(files, count=1)
    with pytest.raises(StoreError, match="no model of step 300 in MLflow yet"):
        store.send(naming(("champion", CHECKPOINTS[2])))


def test_a_model_that_somebody_else_registered_is_left_alone(files: MlflowFiles) -> None:
    store, client = sent(files), files.client()
    client.create_registered_model(EXPERIMENT)
    with pytest.raises(StoreError, match="does not belong to this run"):
        store.send(naming(("champion", CHECKPOINTS[0])))
    assert client.get_registered_model(EXPERIMENT).aliases == {}


def test_the_note_of_a_run_links_to_no_model_of_somebody_else(files: MlflowFiles) -> None:
    client = files.client()
    sent(files, count=1)
    assert f"[Best checkpoints](#/models/{EXPERIMENT})" in note_of(client)
    client.create_registered_model(EXPERIMENT, tags={"tracker.run_key": "of a run in another folder"})
    sent(files, count=2)
    assert "All checkpoints" in note_of(client)
    assert "Best checkpoints" not in note_of(client)


def test_the_note_of_a_run_forgets_what_training_left_behind(files: MlflowFiles) -> None:
    store = sent(files)
    assert "Verdict at step 600" in note_of(files.client())
    rewritten = replace(CHECKPOINTS[2], digest="of-tuesday")
    record = replace(RUN.records[2], plan=replace(RUN.records[2].plan, id="again", checkpoint=rewritten))
    store.send(tracking_batch(record, replace(RUN.reports[2], plan_id="again"), CHECKPOINTS[2:]))
    assert "Verdict at step 300" in note_of(files.client())
    assert "600" not in note_of(files.client())


def test_a_quote_in_the_name_of_a_run_keeps_no_alias_away(files: MlflowFiles) -> None:
    store = MlflowStore(files.settings())
    quoted = replace(CHECKPOINTS[0], run_id='llama\'s "sft"')
    record = replace(RUN.records[0], plan=replace(RUN.records[0].plan, checkpoint=quoted))
    store.send(tracking_batch(record, replace(RUN.reports[0], run_id=quoted.run_id)))
    store.send(replace(naming(("champion", quoted)), checkpoint=quoted))
    store.send(replace(naming(("champion", quoted), ("best-sums", quoted)), checkpoint=quoted))
    (model,) = files.client().search_registered_models()
    assert (model.name, set(model.aliases)) == ("llama-s -sft-", {"champion", "best-sums"})


def test_an_alias_that_a_person_moved_stays_until_the_choice_changes(files: MlflowFiles) -> None:
    store, client = sent(files), files.client()
    store.send(naming(("champion", CHECKPOINTS[0]), ("best-sums", CHECKPOINTS[1])))
    client.set_registered_model_alias(EXPERIMENT, "champion", "2")
    client.set_registered_model_alias(EXPERIMENT, "production", "1")
    for record, report in zip(RUN.records, RUN.reports, strict=True):
        store.send(tracking_batch(record, report))
    assert aliases(client) == {"champion": "200", "best-sums": "200", "production": "100"}
    store.send(naming(("champion", CHECKPOINTS[0]), ("best-sums", CHECKPOINTS[2])))
    assert aliases(client) == {"champion": "100", "best-sums": "300", "production": "100"}


def test_two_projects_with_a_run_of_one_name_never_move_each_others_aliases(files: MlflowFiles) -> None:
    sent(files).send(naming(("champion", CHECKPOINTS[0])))
    other = MlflowStore(files.settings(output_dir="/elsewhere"))
    for record, report in zip(RUN.records, RUN.reports, strict=True):
        other.send(tracking_batch(record, report))
    with pytest.raises(StoreError, match="does not belong to this run"):
        other.send(naming(("champion", CHECKPOINTS[3])))
    assert aliases(files.client()) == {"champion": "100"}


def test_nothing_is_registered_where_aliases_are_switched_off(files: MlflowFiles) -> None:
    sent(files)
    MlflowStore(replace(files.settings(), has_aliases=False)).send(naming(("champion", CHECKPOINTS[0])))
    assert files.client().search_registered_models() == []


def test_the_champions_of_a_run_that_forgets_lie_before_the_loss() -> None:
    run, history = forgetting_run(), FakeHistory()
    for record in run.records:
        history.append(record)
    champions = {c.alias: c for c in champions_of(history.scores(run.run_id))}
    assert set(champions) == {"champion", "best-sums", "best-facts", "best-reversal"}
    verdicts = [(v.word, report.step) for report in run.reports for v in report.verdicts if v.benchmark == "facts"]
    assert champions["best-facts"].checkpoint.step < min(step for word, step in verdicts if word == "forgotten")
