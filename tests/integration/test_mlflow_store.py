"""Batches in a real MLflow store: what lands where, each of it once, whatever happens in between."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from mlflow import MlflowClient

from eval_jobs.errors import ConfigError, TrackingUnreachable
from eval_jobs.queue.database_sql import open_database
from eval_jobs.types import Benchmark
from tests.deep import moments_to_kill
from tests.fakes.hostile_server import HostileServer, endless
from tests.mlflow_stores import EXPERIMENT, MlflowFiles, locked
from tests.records import forgetting_run
from tracker.adapters.mlflow.client import connect
from tracker.adapters.mlflow.runs import TrackingSettings
from tracker.adapters.mlflow.store import MlflowStore
from tracker.adapters.tracking.outbox_sql import OutboxTracking
from tracker.domain.records.tracking import FactsBatch, TrackingItem, TrainerFacts
from tracker.domain.tracking.batch import curve_batch, tracking_batch

RUN = forgetting_run(samples=8)
RECORDS, REPORTS = RUN.records, RUN.reports
LAST = RECORDS[-1].plan.checkpoint


class Killed(BaseException):
    """Stands for `kill -9`: nothing of ours runs after it."""


class InterruptedClient:
    """A client that ends the process after its n-th call that writes."""

    def __init__(self, client: MlflowClient, calls: int) -> None:
        self._client = client
        self._left = calls

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)

        def call(*args: object, **kwargs: object) -> object:
            result = method(*args, **kwargs)
            self._left -= not name.startswith(("get_", "search_"))
            if self._left < 0:
                raise Killed
            return result

        return call


@dataclass(frozen=True)
class InterruptingConnection:
    """Opens such clients."""

    calls: int

    def __call__(self, uri: str) -> InterruptedClient:
        return InterruptedClient(connect(uri), self.calls)


@pytest.fixture
def files(tmp_path: Path) -> MlflowFiles:
    return MlflowFiles(tmp_path)


@pytest.fixture
def store(files: MlflowFiles) -> Iterator[MlflowStore]:
    with closing(MlflowStore(files.settings())) as opened:
        yield opened


def batch(step: int) -> TrackingItem:
    index = step // 100 - 1
    return tracking_batch(RECORDS[index], REPORTS[index])


def send(store: MlflowStore, *steps: int) -> None:
    for step in steps:
        store.send(batch(step))


def test_scores_and_loss_are_points_of_one_run_by_step(files: MlflowFiles, store: MlflowStore) -> None:
    store.send(curve_batch(LAST, RUN.curves))
    send(store, 100, 200)
    (run,) = files.runs()
    assert run.info.run_name == EXPERIMENT
    points = {(m.key, m.step) for m in files.metrics()}
    assert {("bench/facts", 100), ("bench/facts", 200), ("train/loss", 10), ("perf/ttft_ms_p50", 200)} <= points


def test_what_waited_for_a_server_without_an_end_arrives_once(files: MlflowFiles, tmp_path: Path) -> None:
    def outbox(settings: TrackingSettings) -> OutboxTracking:
        return OutboxTracking(open_database(f"sqlite:///{tmp_path}/tracker.db"), MlflowStore(settings))

    with HostileServer(endless) as server, closing(outbox(files.settings(uri=server.url))) as tracking:
        tracking.publish_curves(LAST, RUN.curves)
        tracking.publish(RECORDS[0], REPORTS[0])
        assert tracking.flush(60.0) == 2
        assert server.asked
    with closing(outbox(files.settings())) as tracking:
        assert tracking.flush(60.0) == 0
    assert len(files.runs()) == len(files.models()) == 1


def test_two_runs_of_other_seeds_can_be_told_apart_and_compared(files: MlflowFiles, store: MlflowStore) -> None:
    def facts(run: str, name: str, **params: str) -> None:
        checkpoint = replace(LAST, run_id=run, step=int(params.pop("step", "100")))
        tags = {"mlflow.source.git.commit": "e83c516"}
        store.send(FactsBatch(checkpoint=checkpoint, facts=TrainerFacts(name=name, params=params, tags=tags)))

    def runs() -> dict[str, Any]:
        return {run.data.tags["tracker.run"]: run for run in files.runs()}

    facts("out/a", "sft", seed="1", learning_rate="0.1")
    facts("out/b", "", seed="2", learning_rate="0.2")
    assert [run.info.run_name for run in files.runs()] == ["out/b", "sft"]
    facts("out/b", "sft", seed="2")
    facts("out/a", "", seed="1", learning_rate="0.3", step="200")  # trained on with another rate
    found = runs()
    assert {key: run.info.run_name for key, run in found.items()} == {"out/a": "sft, seed 1", "out/b": "sft, seed 2"}
    assert found["out/a"].data.params == {"seed": "1", "learning_rate": "0.1"}
    assert found["out/b"].data.params == {"seed": "2", "learning_rate": "0.2"}
    tags = found["out/a"].data.tags
    assert (tags["changed/learning_rate"], tags["mlflow.source.git.commit"]) == ("0.3 (step 200)", "e83c516")
    assert len({run.data.tags["mlflow.runColor"] for run in found.values()}) == 2
    files.client().update_run(found["out/a"].info.run_id, name="mine")
    facts("out/a", "sft", seed="1", step="300")
    assert runs()["out/a"].info.run_name == "mine"


def test_every_checkpoint_is_a_model_with_its_scores_on_named_datasets(files: MlflowFiles, store: MlflowStore) -> None:
    send(store, 100, 200, 300)
    assert [m.name for m in files.models()] == [f"step-{s}-{EXPERIMENT}" for s in (100, 200, 300)]
    model = files.models()[0]
    scores = {m.key: (m.dataset_name, m.dataset_digest) for m in model.metrics}
    digests = {d.dataset.name: d.dataset.digest for d in files.runs()[0].inputs.dataset_inputs}
    assert scores["bench/facts"] == ("facts", digests["facts"])
    assert scores["perf/ttft_ms_p50"] == (None, None)
    assert model.params["digest"] == RECORDS[0].plan.checkpoint.digest
    assert {o.model_id for o in files.runs()[0].outputs.model_outputs} == {m.model_id for m in files.models()}


def test_a_repaired_benchmark_is_no_longer_called_failed(files: MlflowFiles, store: MlflowStore) -> None:
    repaired = tracking_batch(RECORDS[0], REPORTS[0])
    tags = {"failed/facts": "E-EVAL-ENDPOINT", "failed/probe-default": "E-PROBE"}
    unscored = [m for m in repaired.metrics if not m.key.startswith(("bench/facts", "perf/"))]
    store.send(replace(repaired, tags=dict(repaired.tags) | tags, metrics=tuple(unscored)))
    other_suite = [m for m in repaired.metrics if m.key == "bench/sums"]
    store.send(replace(repaired, metrics=tuple(other_suite)))
    assert tags.items() <= files.models()[0].tags.items()
    store.send(repaired)
    assert not [tag for tag in files.models()[0].tags if tag.startswith("failed/")]


def test_models_can_be_ranked_by_a_benchmark(files: MlflowFiles, store: MlflowStore) -> None:
    send(store, 100, 600, 1000)
    order = [{"field_name": "metrics.bench/facts", "ascending": False, "dataset_name": "facts"}]
    found = files.client().search_logged_models(["1"], order_by=order)
    assert found[0].params["step"] == "600"


def test_samples_and_report_are_files_of_the_run(files: MlflowFiles, store: MlflowStore) -> None:
    send(store, 300)
    paths = files.files()
    folder = f"step-0000300-{RECORDS[2].plan.checkpoint.digest[:8]}/skills"
    assert set(paths) == {f"{folder}/{n}" for n in ("facts.parquet", "reversal.parquet", "report.json")}
    table = pq.read_table(next(files.artifacts.rglob("facts.parquet")))
    assert table.num_rows == 8
    assert table["prompt"][0].as_py()
    report = json.loads(next(files.artifacts.rglob("report.json")).read_text())
    assert report["value"]["step"] == 300


def test_verdicts_are_tags_of_the_model_and_the_newest_ones_of_the_run(files: MlflowFiles, store: MlflowStore) -> None:
    send(store, 1000, 600)
    first, last = files.models()
    tags = files.runs()[0].data.tags
    assert last.tags["verdict/facts"] == "forgotten"
    assert first.tags["verdict/facts"] != "forgotten"
    assert tags["verdict"] == tags["verdict/facts"] == "forgotten"
    assert "**forgotten**" in tags["mlflow.note.content"]
    assert "at step 1000" in tags["mlflow.note.content"]


def test_a_late_step_leaves_the_latest_value_and_the_runs_end_alone(files: MlflowFiles, store: MlflowStore) -> None:
    send(store, 1000, 600)
    (run,) = files.runs()
    at_1000 = {m.key: m.value for m in batch(1000).metrics}  # type: ignore[union-attr]
    assert run.data.metrics["bench/facts"] == at_1000["bench/facts"]
    assert run.info.status == "FINISHED"
    assert run.info.end_time == int(LAST.ready_at.timestamp() * 1000)


def test_sending_everything_again_from_a_new_process_changes_nothing(files: MlflowFiles) -> None:
    for repeat in range(2):
        with closing(MlflowStore(files.settings())) as store:
            store.send(curve_batch(LAST, RUN.curves))
            send(store, 100, 300, 800)
        if repeat == 0:
            before = files.dump()
    assert files.dump() == before


def test_a_kill_after_any_write_leaves_a_store_that_the_next_start_completes(tmp_path: Path) -> None:
    items = [curve_batch(LAST, RUN.curves[:5]), batch(300)]
    undisturbed = _store_in(tmp_path / "undisturbed")
    _send_all(MlflowStore(undisturbed.settings()), items)
    expected = undisturbed.dump()
    for calls in moments_to_kill():
        files = _store_in(tmp_path / str(calls))
        try:
            _send_all(MlflowStore(files.settings(), open_client=InterruptingConnection(calls)), items)
        except Killed:
            _send_all(MlflowStore(files.settings()), items)
            assert files.dump() == expected, f"killed after write {calls}"
        else:
            break
    assert calls > 10


def test_names_that_mlflow_refuses_arrive_under_keys_that_it_takes(files: MlflowFiles, store: MlflowStore) -> None:
    names = ("pass@1", "acc,none", "acc@none (hard)", "数学")
    suite = replace(RECORDS[0].plan.suite, benchmarks=tuple(Benchmark(name=n, adapter="exact") for n in names))
    outcomes = tuple(replace(RECORDS[0].outcomes[0], benchmark=n) for n in names)
    verdicts = tuple(replace(REPORTS[0].verdicts[0], benchmark=n) for n in names)
    record = replace(RECORDS[0], plan=replace(RECORDS[0].plan, suite=suite), outcomes=outcomes)
    store.send(tracking_batch(record, replace(REPORTS[0], verdicts=verdicts)))
    keys = {m.key for m in files.metrics()}
    assert {"bench/pass_at_1", "bench/acc_none", "bench/acc_at_none _hard_", "bench/数学"} <= keys
    assert {d.dataset.name for d in files.runs()[0].inputs.dataset_inputs} == set(names)
    assert len([f for f in files.files() if f.endswith(".parquet")]) == 4


def test_a_step_that_was_written_again_is_another_model(files: MlflowFiles, store: MlflowStore) -> None:
    again = replace(LAST, digest="e" * 64, ready_at=LAST.ready_at + timedelta(hours=1))
    store.send(batch(1000))
    store.send(tracking_batch(replace(RECORDS[-1], plan=replace(RECORDS[-1].plan, checkpoint=again)), REPORTS[-1]))
    assert len(files.models()) == 2
    assert len([m for m in files.metrics() if m.key == "bench/facts"]) == 2


def test_two_trackings_of_one_name_in_two_folders_do_not_mix(files: MlflowFiles) -> None:
    for folder in ("/a", "/b"):
        with closing(MlflowStore(files.settings(output_dir=folder))) as store:
            send(store, 100)
    assert len(files.runs()) == 2


def test_the_experiment_is_marked_as_one_about_models(files: MlflowFiles, store: MlflowStore) -> None:
    send(store, 100)
    tags = files.client().get_experiment_by_name(EXPERIMENT).tags
    assert tags["mlflow.experimentKind"] == "custom_model_development"


def test_an_experiment_that_was_deleted_is_named(files: MlflowFiles, store: MlflowStore) -> None:
    client = files.client()
    client.delete_experiment(client.create_experiment(EXPERIMENT))
    with pytest.raises(ConfigError, match="tiny-forgetting"):
        send(store, 100)


def test_a_run_that_a_person_deletes_is_made_again(files: MlflowFiles, store: MlflowStore) -> None:
    send(store, 100)
    files.client().delete_run(files.runs()[0].info.run_id)
    send(store, 200)
    assert {m.step for m in files.metrics()} == {200}


def test_a_locked_store_is_given_up_within_seconds_and_works_afterwards(files: MlflowFiles, store: MlflowStore) -> None:
    send(store, 100)
    with locked(files.database), pytest.raises(TrackingUnreachable, match="locked"):
        send(store, 200)
    send(store, 200)
    assert {m.step for m in files.metrics()} == {100, 200}


def test_a_store_whose_folder_cannot_be_made_is_unreachable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = MlflowStore(MlflowFiles(tmp_path).settings(uri=f"sqlite:///{tmp_path}/file/mlflow.db"))
    with pytest.raises(TrackingUnreachable, match=r"file/mlflow\.db"):
        send(store, 100)


def test_a_file_that_is_no_database_is_unreachable(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("no database, for sure" * 100)
    with pytest.raises(TrackingUnreachable, match="not a database"):
        send(MlflowStore(MlflowFiles(tmp_path).settings()), 100)


# --- private


def _store_in(folder: Path) -> MlflowFiles:
    folder.mkdir()
    return MlflowFiles(folder)


def _send_all(store: MlflowStore, items: list[TrackingItem]) -> None:
    for item in items:
        store.send(item)


KILLED_AT_THE_TENTH_TABLE = """
import os, signal, sys
from sqlalchemy import Engine, event
from tracker.adapters.mlflow.client import connect
created = []
@event.listens_for(Engine, "after_cursor_execute")
def count(connection, cursor, statement, *_):
    created.extend([statement] if "CREATE TABLE" in statement else [])
    if len(created) == 10:
        os.kill(os.getpid(), signal.SIGKILL)
connect(sys.argv[1])
"""


def test_a_kill_while_the_tables_are_created_leaves_a_store_that_the_next_start_creates(tmp_path: Path) -> None:
    uri, draft = f"sqlite:///{tmp_path}/mlflow.db", tmp_path / ".mlflow.db.draft"
    creator = subprocess.run([sys.executable, "-c", KILLED_AT_THE_TENTH_TABLE, uri], check=False)
    assert creator.returncode == -signal.SIGKILL
    assert draft.stat().st_size
    assert not (tmp_path / "mlflow.db").exists()
    assert [e.name for e in connect(uri).search_experiments()] == ["Default"]
    assert [path.name for path in tmp_path.iterdir()] == ["mlflow.db"]


def test_a_run_is_shown_as_running_while_it_is_watched_and_as_finished_afterwards(tmp_path: Path) -> None:
    files = MlflowFiles(tmp_path)

    def status() -> list[str]:
        return [run.info.status for run in files.client().search_runs(["1"])]

    store = MlflowStore(files.settings())
    store.follow()
    for record, report in zip(RECORDS[:2], REPORTS[:2], strict=True):
        store.send(tracking_batch(record, report))
        assert status() == ["RUNNING"]
    store.close()
    assert status() == ["FINISHED"]
    with closing(MlflowStore(files.settings())) as once:
        once.send(tracking_batch(RECORDS[2], REPORTS[2]))
        assert status() == ["FINISHED"], "no watcher is left to end it"
