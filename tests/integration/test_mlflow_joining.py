"""Results go into the trainer's own MLflow run where it can be found, and nothing of it is touched beyond that."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from mlflow.entities import Metric, Param, Run

from eval_jobs.errors import ConfigError
from eval_jobs.queue.database_sql import open_database
from tests.mlflow_stores import EXPERIMENT, MlflowFiles
from tests.records import forgetting_run
from tracker.adapters.mlflow.store import MlflowStore
from tracker.adapters.mlflow.view import VIEW_TAG
from tracker.adapters.tracking.outbox_sql import OutboxTracking
from tracker.domain.records.tracking import IncidentKind, IncidentsBatch
from tracker.domain.tracking.batch import curve_batch, timestamp_ms, tracking_batch

RUN = forgetting_run(checkpoints=2, samples=6, trouble=False)
CHECKPOINT = replace(RUN.records[0].plan.checkpoint, source_uri="/out/checkpoint-100")
RECORD = replace(RUN.records[0], plan=replace(RUN.records[0].plan, checkpoint=CHECKPOINT))
LOSSES = {p.step: p.value for p in RUN.curves if p.step <= 100}
READY_MS = timestamp_ms(CHECKPOINT)


@pytest.fixture
def files(tmp_path: Path) -> MlflowFiles:
    return MlflowFiles(tmp_path)


def trainer_writes(files: MlflowFiles, *, output_dir: str = "/out", losses: Mapping[int, float] = LOSSES) -> Run:
    """Leave what Hugging Face's MLflowCallback leaves of a finished training."""
    client = files.client()
    known = client.get_experiment_by_name("sft-runs")
    experiment = known.experiment_id if known else client.create_experiment("sft-runs")
    run = client.create_run(experiment, start_time=READY_MS - 60_000, run_name="monkey-7")
    points = [Metric("loss", value, READY_MS - 1000 + step, step) for step, value in losses.items()]
    client.log_batch(run.info.run_id, metrics=points, params=[Param("output_dir", output_dir), Param("seed", "42")])
    client.set_tag(run.info.run_id, "mlflow.note.content", "My own words.")
    client.set_terminated(run.info.run_id, "FINISHED", READY_MS + 60_000)
    return client.get_run(run.info.run_id)


def track(files: MlflowFiles, **settings: str) -> None:
    """Do what the outbox does with one checkpoint, in a process of its own."""
    store = MlflowStore(files.settings(**settings))
    store.send(curve_batch(CHECKPOINT, [p for p in RUN.curves if p.step <= 100]))
    store.send(tracking_batch(RECORD, RUN.reports[0]))


def test_the_trainers_finished_run_is_joined_and_stays_what_it_is(files: MlflowFiles) -> None:
    before = trainer_writes(files)
    for _ in range(2):
        track(files)
    (after,) = files.runs()
    assert after.info.run_id == before.info.run_id
    assert (after.info.status, after.info.start_time, after.info.end_time, after.info.run_name) == (
        before.info.status,
        before.info.start_time,
        before.info.end_time,
        before.info.run_name,
    )
    assert after.data.params == before.data.params
    assert after.data.tags["mlflow.note.content"].startswith("My own words.")
    assert after.data.metrics["bench/facts"] is not None
    assert not [m for m in files.metrics() if m.key.startswith("train/")]
    assert len([m for m in files.metrics() if m.key == "loss"]) == len(LOSSES)


def test_models_and_the_ready_made_page_are_in_the_trainers_experiment(files: MlflowFiles) -> None:
    trainer_writes(files)
    track(files)
    client = files.client()
    assert [m.name for m in files.models()] == [f"step-100-{EXPERIMENT}"]
    assert VIEW_TAG in client.get_experiment_by_name("sft-runs").tags
    assert client.get_experiment_by_name(EXPERIMENT) is None


def test_a_relative_output_folder_is_recognised_by_its_losses(files: MlflowFiles) -> None:
    trainer = trainer_writes(files, output_dir="./out/")
    track(files)
    assert [r.info.run_id for r in files.runs()] == [trainer.info.run_id]


@pytest.mark.parametrize(("spelled", "watched"), [("link", "real"), ("real", "link"), ("real/../link/", "real")])
def test_an_output_folder_with_another_spelling_is_the_same(
    files: MlflowFiles, tmp_path: Path, spelled: str, watched: str
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    trainer = trainer_writes(files, output_dir=f"{tmp_path}/{spelled}")
    store = MlflowStore(files.settings(output_dir=f"{tmp_path}/{watched}"))
    checkpoint = replace(CHECKPOINT, source_uri=f"{tmp_path}/{watched}/checkpoint-100")
    store.send(curve_batch(checkpoint, ()))
    record = replace(RECORD, plan=replace(RECORD.plan, checkpoint=checkpoint))
    MlflowStore(files.settings(output_dir=f"{tmp_path}/real")).send(tracking_batch(record, RUN.reports[0]))
    assert [r.info.run_id for r in files.runs()] == [trainer.info.run_id]


def test_a_run_below_the_watched_folder_is_joined(files: MlflowFiles) -> None:
    trainer_writes(files, output_dir="/out")
    track(files, output_dir="/")
    assert len(files.runs()) == 1


def test_another_training_into_the_same_folder_is_left_alone(files: MlflowFiles) -> None:
    other = trainer_writes(files, losses={step: value + 0.1 for step, value in LOSSES.items()})
    track(files)
    ours, theirs = sorted(files.runs(), key=lambda r: r.info.run_id == other.info.run_id)
    assert theirs.data.metrics == other.data.metrics
    assert "bench/facts" in ours.data.metrics
    assert "train/loss" in ours.data.metrics


def test_a_resumed_training_with_a_run_of_its_own_does_not_split_the_results(files: MlflowFiles) -> None:
    first = trainer_writes(files)
    track(files)
    trainer_writes(files)
    track(files)
    with_results = [r.info.run_id for r in files.runs() if "bench/facts" in r.data.metrics]
    assert with_results == [first.info.run_id]


def test_a_run_that_is_named_is_joined_whatever_its_folder(files: MlflowFiles) -> None:
    named = trainer_writes(files, output_dir="/somewhere/else", losses={1: 9.0})
    track(files, run_id=named.info.run_id)
    (run,) = files.runs()
    assert "bench/facts" in run.data.metrics
    assert "train/loss" not in run.data.metrics


def test_a_run_of_ours_may_be_named_too_and_keeps_its_curves(files: MlflowFiles) -> None:
    track(files)
    (ours,) = files.runs()
    before = files.dump()
    track(files, run_id=ours.info.run_id)
    assert files.dump()["metrics"] == before["metrics"]


@pytest.mark.parametrize("run_id", ["0" * 32, "no such run"])
def test_a_named_run_that_does_not_exist_is_a_clear_error(files: MlflowFiles, run_id: str) -> None:
    with pytest.raises(ConfigError, match=run_id) as caught:
        track(files, run_id=run_id)
    assert "tracking.run_id" in caught.value.hint


def test_a_named_run_that_was_deleted_is_a_clear_error(files: MlflowFiles) -> None:
    named = trainer_writes(files)
    files.client().delete_run(named.info.run_id)
    with pytest.raises(ConfigError, match="deleted"):
        track(files, run_id=named.info.run_id)


@pytest.mark.parametrize("output_dir", ['/data/it\'s 100% "fine"', "/data/50%_off", "/data/o'clock"])
def test_an_output_folder_of_any_name_does_not_stop_the_results(files: MlflowFiles, output_dir: str) -> None:
    trainer_writes(files, output_dir=output_dir)
    checkpoint = replace(CHECKPOINT, source_uri=f"{output_dir}/checkpoint-100")
    store = MlflowStore(files.settings(output_dir=output_dir))
    store.send(curve_batch(checkpoint, RUN.curves[:10]))
    assert files.runs()


def test_results_join_the_trainers_run_although_live_curves_came_first(files: MlflowFiles) -> None:
    points = [p for p in RUN.curves if p.step <= 100]
    queued = OutboxTracking(open_database(f"sqlite:///{files.folder}/outbox.db"), MlflowStore(files.settings()))
    queued.publish_live_curves(CHECKPOINT.run_id, points, CHECKPOINT.ready_at)
    queued.publish_incidents(CHECKPOINT.run_id, ["GPU memory ran out at step 90"], CHECKPOINT.ready_at)
    assert queued.flush() == 0
    (ours,) = files.runs()
    assert "train/loss" in ours.data.metrics
    trainers = trainer_writes(files, output_dir="out")
    queued.publish_curves(CHECKPOINT, points)
    queued.publish(RECORD, RUN.reports[0])
    assert queued.flush() == 0
    queued.close()
    (only,) = files.runs()
    assert only.info.run_id == trainers.info.run_id
    assert "bench/facts" in only.data.metrics


def test_an_incident_is_not_written_into_another_training_of_a_folder_with_the_same_name(files: MlflowFiles) -> None:
    other = trainer_writes(files, output_dir="out", losses={10: 9.0})
    batch = IncidentsBatch(run_id=CHECKPOINT.run_id, at_ms=READY_MS, incidents=("GPU memory ran out at step 90",))
    MlflowStore(files.settings()).send(batch)
    (theirs,) = (run for run in files.runs() if run.info.run_id == other.info.run_id)
    assert theirs.data.tags == other.data.tags


def test_an_incident_is_in_a_tag_and_in_the_description_of_our_own_run(files: MlflowFiles) -> None:
    text = "GPU memory ran out at step 90 (lasts)"
    store = MlflowStore(files.settings())
    store.send(IncidentsBatch(run_id=CHECKPOINT.run_id, at_ms=READY_MS, incidents=(text,)))
    loss = "sums: 0.940 at step 600 -> 0.000 since step 700"
    store.send(IncidentsBatch(run_id=CHECKPOINT.run_id, kind=IncidentKind.LOSS, at_ms=READY_MS, incidents=(loss,)))
    (ours,) = files.runs()
    assert (ours.data.tags["tracker.incidents"], ours.data.tags["open_losses"]) == (text, loss)
    note = ours.data.tags["mlflow.note.content"]
    assert note.index("**Open losses**") < note.index("0.940 at step 600 -") < note.index(text)
