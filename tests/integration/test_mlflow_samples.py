"""Samples of two checkpoints in a real MLflow store: what is written, once, and what is said where it cannot be."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from mlflow import MlflowClient
from mlflow.entities import Run, Trace
from mlflow.tracing.client import TracingClient

from eval_jobs.errors import ConfigError, StoreError, TrackingUnreachable
from eval_jobs.types import EvalResult, SampleStatus
from tests.mlflow_stores import EXPERIMENT, MlflowFiles, locked
from tests.records import FORGETTING_TOML, forgetting_run
from tracker.adapters.mlflow import samples
from tracker.adapters.mlflow.samples import NOT_KEPT, SAMPLES_KEY_TAG, write_pages
from tracker.adapters.mlflow.store import MlflowStore
from tracker.api.opening import open_project
from tracker.cli.commands.to_inspect.compare import command
from tracker.domain.compare.sample_pages import SamplePage, SampleSheet, sample_pages
from tracker.domain.tracking.batch import tracking_batch

RUN = forgetting_run(samples=6)
BEFORE, AFTER = RUN.records[5], RUN.records[8]
PAGES = sample_pages(BEFORE, AFTER, ("facts",)).pages
SAMPLES = f"{EXPERIMENT}/samples"


@pytest.fixture
def files(tmp_path: Path) -> MlflowFiles:
    return MlflowFiles(tmp_path)


def write(files: MlflowFiles, pages: tuple[SamplePage, ...] = PAGES) -> list[str]:
    return list(write_pages(files.settings(), pages))


def sheets(files: MlflowFiles) -> dict[str, Run]:
    return {run.info.run_name: run for run in files.runs(SAMPLES)}


def traces(files: MlflowFiles, run: Run) -> list[Trace]:
    """Return the traces of a run in the order in which MLflow lists them."""
    return list(files.client().search_traces(locations=[run.info.experiment_id], run_id=run.info.run_id))


def scores(trace: Trace) -> dict[str, object]:
    return {a.name: a.value for a in trace.info.assessments}


def test_each_sample_is_there_with_its_question_target_answer_and_score(files: MlflowFiles) -> None:
    write(files)
    run = sheets(files)["tiny-forgetting@600 facts"]
    assert run.info.status == "FINISHED"
    assert run.data.tags["mlflow.runType"] == "genai_evaluate"
    assert [d.dataset.name for d in run.inputs.dataset_inputs] == ["facts"]
    fixed = PAGES[-1].before
    found = traces(files, run)
    assert [t.info.request_preview for t in found] == [row.title for row in fixed.rows]
    assert [scores(t) for t in found] == [
        {"facts": "yes" if row.score else "no", "target": row.target} for row in fixed.rows
    ]
    span = found[0].data.spans[0]
    assert (span.inputs["prompt"], span.outputs) == (fixed.rows[0].prompt, fixed.rows[0].answer)


@pytest.fixture
def filled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the sheets whose samples are written, in order."""
    names: list[str] = []
    fill = samples._fill

    def noted(client: MlflowClient, traces: TracingClient, run: Run, sheet: SampleSheet) -> None:
        names.append(sheet.name)
        fill(client, traces, run, sheet)

    monkeypatch.setattr(samples, "_fill", noted)
    return names


def test_writing_again_finds_what_is_there_and_a_kill_half_way_doubles_nothing(
    files: MlflowFiles, filled: list[str]
) -> None:
    first = write(files)
    client, names = files.client(), set(sheets(files))
    assert len(filled) == len(names) == 4
    assert write(files) == first
    assert len(filled) == 4
    run = sheets(files)["tiny-forgetting@900 facts"]
    client.update_run(run.info.run_id, status="RUNNING")  # as a kill before its last line leaves it
    assert write(files) == first
    assert filled[4:] == ["tiny-forgetting@900 facts"]
    assert set(sheets(files)) == names
    assert len(files.runs(SAMPLES)) == 4
    found = traces(files, run)
    assert len(found) == len(PAGES[-1].after.rows)
    assert all(len(trace.info.assessments) == 2 and len(trace.data.spans) == 1 for trace in found)


def test_the_next_pair_writes_only_the_side_that_is_new(files: MlflowFiles, filled: list[str]) -> None:
    write(files, PAGES[-1:])
    next_pair = sample_pages(BEFORE, RUN.records[9], ("facts",)).pages[-1:]
    write(files, next_pair)
    assert len(filled) == 3
    assert len(files.runs(SAMPLES)) == 3


def test_what_has_no_score_is_an_error_and_no_wrong_answer(files: MlflowFiles) -> None:
    (facts,) = (o for o in BEFORE.outcomes if isinstance(o, EvalResult) and o.benchmark == "facts")
    cut = replace(facts.samples[0], score=None, status=SampleStatus.ERROR, answer="", detail="the stream was cut")
    record = replace(BEFORE, outcomes=(replace(facts, samples=(cut, *facts.samples[1:])),))
    write(files, sample_pages(record, AFTER, ("facts",)).pages[-1:])
    (failed,) = (t for t in traces(files, sheets(files)["tiny-forgetting@600 facts"]) if t.info.state == "ERROR")
    (score,) = (a for a in failed.info.assessments if a.name == "facts")
    assert (score.value, score.error.error_code, score.error.error_message) == (None, "ERROR", "the stream was cut")


def test_answers_that_are_no_longer_kept_are_said_to_be(files: MlflowFiles) -> None:
    outcomes = tuple(replace(o, has_texts=False) if isinstance(o, EvalResult) else o for o in BEFORE.outcomes)
    write(files, sample_pages(replace(BEFORE, outcomes=outcomes), AFTER, ("facts",)).pages[-1:])
    run = sheets(files)["tiny-forgetting@600 facts"]
    assert {t.data.spans[0].outputs for t in traces(files, run)} == {NOT_KEPT}


def test_the_description_of_the_training_run_leads_to_the_samples(files: MlflowFiles) -> None:
    store = MlflowStore(files.settings())
    store.send(tracking_batch(BEFORE, RUN.reports[5]))
    assert "Samples" not in files.runs(EXPERIMENT)[0].data.tags["mlflow.note.content"]
    write(files, PAGES[-1:])
    samples = files.runs(SAMPLES)[0].info.experiment_id
    link = f"[Samples before and after](#/experiments/{samples}/evaluation-runs?workflowType=genai)"
    assert link in files.runs(EXPERIMENT)[0].data.tags["mlflow.note.content"]
    store.send(tracking_batch(AFTER, RUN.reports[8]))
    assert link in files.runs(EXPERIMENT)[0].data.tags["mlflow.note.content"]


def test_two_projects_in_one_store_have_sheets_of_their_own(files: MlflowFiles) -> None:
    write(files, PAGES[-1:])
    list(write_pages(files.settings(output_dir="/elsewhere"), PAGES[-1:]))
    assert len({run.data.tags[SAMPLES_KEY_TAG] for run in files.runs(SAMPLES)}) == 4


def test_a_store_that_is_away_or_an_experiment_that_was_deleted_is_said(files: MlflowFiles) -> None:
    with locked(files.database), pytest.raises(TrackingUnreachable, match="locked"):
        write(files)
    write(files, PAGES[-1:])
    files.client().delete_experiment(files.runs(SAMPLES)[0].info.experiment_id)
    with pytest.raises((ConfigError, StoreError), match="deleted"):
        write(files)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose history has the run, and no MLflow store yet."""
    home = tmp_path_factory.mktemp("project")
    (home / "tracker.toml").write_text(FORGETTING_TOML)
    history = open_project(home / "tracker.toml").history
    for record, report in ((BEFORE, RUN.reports[5]), (AFTER, RUN.reports[8])):
        history.append(record)
        history.append_reports(report)
    return home


def compare(home: Path, *arguments: str) -> Result:
    return CliRunner().invoke(
        command, ["600", "900", "--config", str(home / "tracker.toml"), *arguments], catch_exceptions=True
    )


def test_the_command_prints_a_link_for_each_page_and_the_second_call_the_same_ones(project: Path) -> None:
    shutil.copy(MlflowFiles(project).database, project / ".tracker" / "mlflow.db")
    first, second = (compare(project, "--mlflow") for _ in range(2))
    assert first.exit_code == 0, first.output
    assert first.output == second.output
    links = [line.strip() for line in first.output.splitlines() if "evaluation-runs" in line]
    # `facts` and `sums` were lost, `reversal` was gained.
    assert len(set(links)) == len(links) == 6
    assert "(start `tracker ui` to open the links):" in first.output
    assert "facts: all 6 samples" in first.output


def test_where_nothing_is_written_to_mlflow_the_command_says_so(project: Path, tmp_path: Path) -> None:
    config = tmp_path / "tracker.toml"
    state = f'output_dir = "out"\nstate_dir = "{project}/.tracker"'
    config.write_text(FORGETTING_TOML.replace('output_dir = "out"', state) + "\n[tracking]\nenabled = false\n")
    result = compare(tmp_path, "--mlflow")
    assert isinstance(result.exception, ConfigError)
    assert "tracking.enabled" in result.exception.message


def test_a_server_that_is_down_is_named_after_the_comparison(project: Path, tmp_path: Path) -> None:
    config = tmp_path / "tracker.toml"
    state = f'output_dir = "out"\nstate_dir = "{project}/.tracker"'
    server = '\n[tracking]\nuri = "http://127.0.0.1:9"\n'
    config.write_text(FORGETTING_TOML.replace('output_dir = "out"', state) + server)
    result = compare(tmp_path, "--mlflow")
    assert "forgotten" in result.output or "regressed" in result.output
    assert isinstance(result.exception, TrackingUnreachable)
    assert "run the command again" in result.exception.hint
