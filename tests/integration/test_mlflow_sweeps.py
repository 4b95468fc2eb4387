"""What a sweep measured, in a real MLflow: runs to be compared, and nothing of it in the training run."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from mlflow.entities import Run

from eval_jobs.errors import ServerDied
from eval_jobs.queue.database_sql import open_database
from eval_jobs.run import record_of_failure
from tests.fakes.clock import FakeClock
from tests.mlflow_stores import EXPERIMENT, MlflowFiles
from tests.sweeping import CHECKPOINTS, LOADS, NOW, OTHER, RECORDED, answered, sweep_of
from tracker.adapters.mlflow.store import MlflowStore
from tracker.adapters.mlflow.sweeps import PARENT_TAG
from tracker.adapters.tracking.outbox_sql import OutboxTracking
from tracker.domain.sweeps.matrix import plans_of
from tracker.domain.tracking.batch import sweep_batch

SWEEP = sweep_of(axes={"temperature": (0.0, 0.7)}, loads=LOADS, endpoints=(OTHER,))
PLANS = plans_of(SWEEP, CHECKPOINTS[-1:], run=RECORDED.run_id, due_at=NOW)


@pytest.fixture
def files(tmp_path: Path) -> MlflowFiles:
    return MlflowFiles(tmp_path)


def children(files: MlflowFiles) -> list[Run]:
    return [run for run in files.runs() if PARENT_TAG in run.data.tags]


def points(files: MlflowFiles, run: Run) -> list[tuple[str, int, float, int]]:
    """Return every point of a run."""
    client = files.client()
    found = (m for key in sorted(run.data.metrics) for m in client.get_metric_history(run.info.run_id, key))
    return [(m.key, m.step, m.value, m.timestamp) for m in found]


def test_every_variant_is_a_run_whose_parameters_are_its_settings_below_the_training_run(files: MlflowFiles) -> None:
    outbox = OutboxTracking(
        open_database(f"sqlite:///{files.folder}/tracker.db"), MlflowStore(files.settings()), FakeClock()
    )
    outbox.publish(RECORDED.records[-1], RECORDED.reports[-1])
    assert outbox.flush() == 0
    before = points(files, files.runs()[0])
    for _ in range(2):  # handed in twice, as after a crash
        for plan in PLANS:
            outbox.publish_sweep(answered(plan, right=7 + (plan is PLANS[1])))
        assert outbox.flush() == 0
    (training,) = (run for run in files.runs() if PARENT_TAG not in run.data.tags)
    found = children(files)
    assert {run.data.tags[PARENT_TAG] for run in found} == {training.info.run_id}
    assert {run.info.run_name for run in found} == {
        f"{CHECKPOINTS[-1].run_id}@400, temperature 0",
        f"{CHECKPOINTS[-1].run_id}@400, temperature 0.7",
        "other, temperature 0",
        "other, temperature 0.7",
    }
    by_name = {run.info.run_name: run for run in found}
    hot = by_name[f"{CHECKPOINTS[-1].run_id}@400, temperature 0.7"]
    assert {name: hot.data.params[name] for name in ("temperature", "step", "target", "sweep", "seed")} == {
        "temperature": "0.7",
        "step": "400",
        "target": f"{CHECKPOINTS[-1].run_id}@400",
        "sweep": "nightly",
        "seed": "0",
    }
    assert hot.data.metrics["bench/facts"] == 0.8
    assert by_name["other, temperature 0"].data.params["model"] == "big"
    assert "perf/c4/ttft_ms_p50" in by_name["other, temperature 0"].data.metrics
    assert all(run.info.status == "FINISHED" for run in found)
    assert points(files, training) == before
    for run in found:
        written = points(files, run)
        assert written
        assert len(written) == len(set(written))
    outbox.close()


def test_a_plan_that_is_asked_again_after_a_failure_takes_its_place(files: MlflowFiles) -> None:
    store = MlflowStore(files.settings())
    failed = record_of_failure(PLANS[0], ServerDied("gone", hint="look"), started_at=NOW, finished_at=NOW)
    store.send(sweep_batch(failed))
    (run,) = children(files)
    assert {tag for tag in run.data.tags if tag.startswith("failed/")} >= {"failed/facts", "failed/probe-c1"}
    repaired = replace(answered(PLANS[0]), finished_at=NOW + timedelta(hours=1))
    for _ in range(2):
        store.send(sweep_batch(repaired))
    (run,) = children(files)
    assert [tag for tag in run.data.tags if tag.startswith("failed/")] == []
    assert run.data.metrics["coverage/facts"] == 1.0
    assert run.info.end_time == int((NOW + timedelta(hours=1)).timestamp() * 1000)
    assert len(files.runs(EXPERIMENT)) == len(files.runs()) == 2
