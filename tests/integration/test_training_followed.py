"""A real training with Hugging Face's Trainer is followed to MLflow while it runs, until it runs out of memory."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from eval_jobs.host.clock import SystemClock
from eval_jobs.queue.database_sql import open_database
from eval_jobs.queue.migrate_sql import bring_up_to_date
from tests.deep import sized
from tests.fakes.alerting import FakeAlerting
from tests.fakes.history import FakeHistory
from tests.mlflow_stores import MlflowFiles
from tests.requires import PROJECT
from tests.tables import HISTORIES
from tracker.adapters.health.history_sql import SqlTrainingHistory
from tracker.adapters.mlflow.store import MlflowStore
from tracker.adapters.tracking.outbox_sql import OutboxTracking
from tracker.app.health.notices import TrainingMonitor
from tracker.app.health.settings import AgentSettings
from tracker.app.news import StoreNews
from tracker.app.steps.alerting import AlertDispatcher
from tracker.config.health import load_rules
from tracker.domain.alerts.training import RunStanding
from tracker.domain.records.alerts import AlertEvidence
from tracker.wiring.agent import follower_of

TRAINER = PROJECT / "examples" / "tiny_forgetting" / "train.py"
CRASH_AT = sized(35, 700)
LOGGED = range(10, CRASH_AT, 10)
"""Steps at which the trainer logs; it fails before it logs the step of the crash."""


@pytest.mark.timeout(400)
def test_a_training_that_runs_out_of_memory_is_one_alert_with_its_step_and_curves_until_then(tmp_path: Path) -> None:
    log, clock, files = tmp_path / "train.log", SystemClock(), MlflowFiles(tmp_path)
    engine = open_database(f"sqlite:///{tmp_path}/tracker.db")
    for one in HISTORIES:
        bring_up_to_date(engine, one)
    history, alerting = SqlTrainingHistory(engine), FakeAlerting()
    settings = AgentSettings(
        run="run", output_dir=str(tmp_path / "out"), patterns=(str(log),), rules=load_rules().lines
    )
    agent = follower_of(settings, engine, clock)
    dispatcher = AlertDispatcher(alerts=FakeHistory(), records=FakeHistory(), alerting=alerting)
    news = StoreNews(run="run", history=history)
    monitor = TrainingMonitor(
        run="run",
        history=history,
        tracking=(tracking := OutboxTracking(engine, MlflowStore(files.settings()))),
        dispatcher=dispatcher,
        standing=lambda _: RunStanding(),
    )
    agent.follow()  # before the training: what it writes is no history
    command = [sys.executable, str(TRAINER), "--output-dir", str(tmp_path / "out"), "--crash-at", str(CRASH_AT)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment) as trainer,
    ):
        while trainer.poll() is None:
            agent.follow()
            threading.Event().wait(0.2)
    assert trainer.returncode == 1
    for _ in range(2):
        agent.follow()
        monitor.note(news.take(clock.now()))
        monitor.look(clock.now())
    assert tracking.flush() == 0
    agent.log.close()
    tracking.close()
    (alert,) = alerting.alerts
    assert (alert.kind, alert.subject.name) == ("crash", "host_oom")
    at = "Host memory ran out at step {}; the run has no checkpoint yet"
    assert_it_helps(alert.evidence)
    assert alert.message in {at.format(step) for step in range(LOGGED[-1], CRASH_AT + 1)}  # as far as the bar was drawn
    assert_curves_are_in(files)


def assert_it_helps(evidence: AlertEvidence | None) -> None:
    assert evidence is not None
    assert "DefaultCPUAllocator: can't allocate memory" in evidence.lines[0]
    assert "more memory for the job" in evidence.hint


def assert_curves_are_in(files: MlflowFiles) -> None:
    (run,) = files.runs()
    losses = files.client().get_metric_history(run.info.run_id, "train/loss")
    assert [point.step for point in losses] == [*LOGGED]
    assert all(0 < point.value < 10 for point in losses)
    assert "Host memory ran out at step" in run.data.tags["tracker.incidents"]
