"""How commands name checkpoints, over a history on disk and a real MLflow registry."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from eval_jobs.errors import ConfigError, TrackerError
from tests.commands import tracker
from tests.mlflow_stores import MlflowFiles
from tests.records import FORGETTING_TOML, forgetting_run
from tracker.adapters.mlflow.runs import TrackingSettings
from tracker.adapters.mlflow.store import MlflowStore
from tracker.api.opening import open_project
from tracker.api.references import is_reference, named_checkpoint
from tracker.app.steps.best_of_run import best_of_run
from tracker.domain.tracking.batch import tracking_batch
from tracker.wiring.project import Project

RUN = "tiny-forgetting"
OTHER = "other"
"""A run with the same checkpoints, to the bit."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs; of one, steps 600 and 1000 are versions 1, the champion, and 2 in MLflow. Version 3 is a stranger."""
    folder = tmp_path_factory.mktemp("named")
    files = MlflowFiles(folder)
    (folder / "tracker.toml").write_text(f'{FORGETTING_TOML}[tracking]\nuri = "{files.uri}"\n', encoding="utf-8")
    project = open_project(folder / "tracker.toml")
    run = forgetting_run(trouble=False)
    for record, report in zip(run.records, run.reports, strict=True):
        project.history.append(record)
        project.history.append_reports(report)
    again = forgetting_run(run_id=OTHER, trouble=False)
    for record, report, twin in zip(again.records, again.reports, run.records, strict=True):
        same = replace(record.plan.checkpoint, digest=twin.plan.checkpoint.digest)
        project.history.append(replace(record, plan=replace(record.plan, checkpoint=same)))
        project.history.append_reports(replace(report, checkpoint=same))
    settings = TrackingSettings(uri=files.uri, experiment=RUN, output_dir=project.config.run.output_dir)
    with closing(MlflowStore(settings)) as store:
        for at in (5, 9):
            store.send(tracking_batch(run.records[at], run.reports[at]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", files.uri)  # as a person who registers a model has it
        _register(files)
    return folder


def _register(files: MlflowFiles) -> None:
    client = files.client()
    client.create_registered_model("sft")
    for model in files.models():
        client.create_model_version("sft", f"models:/{model.model_id}", model_id=model.model_id)
    client.set_registered_model_alias("sft", "champion", "1")
    stranger = client.create_logged_model(client.create_experiment("elsewhere", str(files.artifacts)), name="stranger")
    client.create_model_version("sft", f"models:/{stranger.model_id}", model_id=stranger.model_id)


@pytest.fixture
def project(folder: Path) -> Project:
    return open_project(folder / "tracker.toml")


@pytest.mark.parametrize(
    ("name", "run", "step"),
    [
        ("600", RUN, 600),
        ("other@600", OTHER, 600),
        ("latest", RUN, 1000),
        ("models:/sft@champion", RUN, 600),
        ("models:/sft/2", RUN, 1000),
    ],
)
def test_a_name_leads_to_its_checkpoint(project: Project, name: str, run: str, step: int) -> None:
    found = named_checkpoint(project, name)
    assert (found.run_id, found.step) == (run, step)
    assert is_reference(name)


@pytest.mark.parametrize(("prefix", "run"), [("", RUN), ("other@", OTHER)])
def test_best_is_the_checkpoint_that_the_rule_names(project: Project, prefix: str, run: str) -> None:
    for name, benchmark in (("best", None), ("best:facts", "facts"), ("best:reversal", "reversal")):
        best = best_of_run(run, project.history, benchmark)
        assert best is not None
        found = named_checkpoint(project, prefix + name)
        assert (found.run_id, found.plan_id) == (run, best.plan.id)
    assert named_checkpoint(project, "best:facts").step < named_checkpoint(project, "best:reversal").step


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nonsense", "invalid checkpoint reference 'nonsense'"),
        ("best:", "invalid checkpoint reference 'best:'"),
        ("best:chess", "has a score for chess (evaluated in full)"),
        ("nobody@best", "no run 'nobody'"),
        ("best:pass@1", "a score for pass@1 (evaluated in full)"),
        ("700:ffff", "no evaluated checkpoint 700:ffff"),
        ("models:/sft", "invalid model version 'models:/sft'"),
        ("models:/sft@nobody", "no models:/sft@nobody in the MLflow registry"),
        ("models:/nothing@champion", "no models:/nothing@champion in the MLflow registry"),
        ("models:/sft/77", "no models:/sft/77 in the MLflow registry"),
        ("models:/sft/3", "is not the model of an evaluated checkpoint"),
    ],
)
def test_what_names_nothing_is_said(project: Project, name: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        named_checkpoint(project, name)
    assert words in caught.value.message
    assert caught.value.hint


def test_a_registry_that_does_not_answer_is_no_wrong_name(folder: Path) -> None:
    (folder / "away.toml").write_text(f'{FORGETTING_TOML}[tracking]\nuri = "http://127.0.0.1:9"\n', encoding="utf-8")
    with pytest.raises(TrackerError) as caught:
        named_checkpoint(open_project(folder / "away.toml"), "models:/sft@champion")
    assert caught.value.exit_code == 4
    (folder / "off.toml").write_text(f"{FORGETTING_TOML}[tracking]\nenabled = false\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"tracking\.enabled is false"):
        named_checkpoint(open_project(folder / "off.toml"), "models:/sft@champion")


def test_every_command_that_takes_a_checkpoint_reads_the_same_names(folder: Path) -> None:
    assert "step 1000 compared with step 600" in tracker(folder, "compare", "models:/sft@champion", "models:/sft/2")
    said = tracker(folder, "gate", "latest", "--baseline", "models:/sft@champion", "--format", "text", code=1)
    assert "tiny-forgetting@1000 against tiny-forgetting@600" in said
    said = tracker(folder, "accept", "models:/sft@champion", "facts", "--reason", "as planned")
    assert "accepted the score of facts in tiny-forgetting at step 600" in said
    said = tracker(folder, "calibrate", "models:/sft@champion", code=2)  # its pin was never made
    assert "600" in said
