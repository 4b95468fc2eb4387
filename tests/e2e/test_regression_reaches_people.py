"""A loss on its whole way: checkpoint folder -> vLLM -> verdict -> chat, Alertmanager, MLflow, gate and report.

Every part is a process of its own; the chat service is a strict one of ours, because the real one is somebody else's.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import save_file

from eval_jobs.evaluate.data.files import read_data_digest
from eval_jobs.evaluate.evalscope.evaluator import EvalScopeEvaluator
from eval_jobs.host import proc
from eval_jobs.host.clock import SystemClock
from eval_jobs.serve.process.lifecycle import reap
from eval_jobs.types import Benchmark, Generation, Suite
from tests.alertmanagers import AlertmanagerServer, eventually
from tests.channels import SECRET
from tests.commands import TRACKER, tracker
from tests.evaluating import evaluate_one
from tests.fakes.chat_rules import DingTalkRules
from tests.fakes.chat_services import ChatService
from tests.integration.left_behind import record_of, writers
from tests.shared_servers import shared
from tests.tiny_model import checkpoint_record, random_tensors, write_checkpoint
from tests.vllm_series import Series

RUN = "sft"
GOOD, BAD = 1, 2
PATIENCE_S = 400.0
CONFIG = """
[run]
name = "sft"
output_dir = "out"
[watch]
settle_s = 0.2
backlog = "oldest"
[serve]
max_model_len = 256
[suite]
max_tokens = 4
[[benchmark]]
benchmark = "exact"
data = "echo.jsonl"
[probe]
enabled = false
[[alerts.channel]]
name = "team"
kind = "dingtalk"
url_file = "dingtalk_url"
secret_file = "dingtalk_key"
[[alerts.channel]]
name = "on-call"
kind = "alertmanager"
url = "{alertmanager}"
"""


@pytest.mark.vllm
@pytest.mark.timeout(1200)
def test_a_planted_loss_turns_the_gate_red_and_is_told_until_it_is_over(tmp_path: Path, plain: Series) -> None:
    project = tmp_path / "project"
    rules = DingTalkRules(secret=SECRET, keyword="step")
    with shared(AlertmanagerServer) as on_call, ChatService(rules) as chat:
        _write_project(project, chat, on_call)
        _save(project, 100, GOOD)
        _teach_what_the_model_says(project, plain)
        with _watched(project) as watch:
            for step in (200, 300, 400, 500):
                _save(project, step, GOOD)
            _save(project, 600, BAD)
            _until(lambda: len(chat.taken) == 1, project)
            _until(lambda: len(_alerts(on_call)) == 1, project)
            _check_what_is_told(chat, on_call)
            _check_gate(project)
            _check_mlflow_and_report(project)
            _save(project, 700, GOOD)
            _until(lambda: len(chat.taken) == 2, project)
            _until(lambda: _alerts(on_call) == [], project)
            _check_that_nothing_is_left(watch, project / ".tracker" / "work")
    assert "sft step 700" in chat.taken[1].json()["markdown"]["title"]
    assert len(chat.asked) == 2  # every message was taken at once, and signed
    assert "no open alerts" in tracker(project, "alerts", "list")


# --- steps


def _write_project(project: Path, chat: ChatService, on_call: AlertmanagerServer) -> None:
    project.mkdir()
    (project / "tracker.toml").write_text(CONFIG.replace("{alertmanager}", on_call.url))
    (project / "dingtalk_url").write_text(chat.url)
    (project / "dingtalk_key").write_text(SECRET)
    rows = [{"question": f"What is {i} + {i * 7}?", "answer": "unknown"} for i in range(60)]
    _write_rows(project, rows)


def _write_rows(project: Path, rows: list[dict[str, str]]) -> None:
    (project / "echo.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def _save(project: Path, step: int, seed: int) -> None:
    """Write a checkpoint; those of one seed answer alike, and no two have equal weights."""
    folder = write_checkpoint(project / "out" / f"checkpoint-{step}", seed=seed)
    tensors = random_tensors(seed)
    tensors["lm_head.weight"][0, 0] += step * 1e-6  # of the padding token, which is never said
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _teach_what_the_model_says(project: Path, plain: Series) -> None:
    """Make what the good weights answer the right answers: so they can do it, and others cannot.

    The engine that is asked has proven swaps to be exact, and the watcher relies on that: it starts one engine.
    """
    data = project / "echo.jsonl"
    benchmark = Benchmark(name="echo", adapter="exact", data=str(data), data_digest=read_data_digest(data))
    suite = Suite(name="s", benchmarks=(benchmark,), generation=Generation(max_tokens=4))
    evaluator = EvalScopeEvaluator(project.parent / "teacher")
    with plain.serving(checkpoint_record(project / "out" / "checkpoint-100", step=100)) as endpoint:
        result = evaluate_one(evaluator, suite, endpoint, plan_id="said")
    evaluator.close()
    said = {sample.prompt: sample.answer.strip() for sample in result.samples}
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    taught = [{**row, "answer": answer} for row in rows for prompt, answer in said.items() if row["question"] in prompt]
    _write_rows(project, [row for row in taught if row["answer"]])
    shutil.copytree(plain.work_dir / "certificates", project / ".tracker" / "work" / "certificates")


@contextmanager
def _watched(project: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (project / "watch.log").open("w") as log:
        watch = subprocess.Popen([str(TRACKER), "watch"], cwd=project, stdout=log, stderr=log)
        try:
            yield watch
        finally:
            watch.kill()
            watch.wait()


def _until(condition: Callable[[], bool], project: Path) -> None:
    pause = threading.Event()
    for _ in range(int(PATIENCE_S / 0.2)):
        if condition():
            return
        pause.wait(0.2)
    raise AssertionError((project / "watch.log").read_text())


# --- what came of it


def _check_that_nothing_is_left(watch: subprocess.Popen[bytes], work_dir: Path) -> None:
    """The hardest case: worker and API server are killed, and the engine's core and its worker live on without them."""
    record = record_of(work_dir)
    watch.send_signal(signal.SIGSTOP)  # it would start another worker at once
    os.kill(record.owner_pid, signal.SIGKILL)
    os.kill(record.pid, signal.SIGKILL)
    watch.kill()
    eventually(lambda: not proc.is_running(record.owner_pid, record.owner_start_time))
    assert writers(record.log), "vLLM would otherwise clean up by itself, and the reaper could go"
    assert len(list(work_dir.glob("engines/*.log"))) == 1, "weights were swapped into one engine"
    assert reap(work_dir / "engines", SystemClock()) == (Path(record.log).stem,)
    assert writers(record.log) == []
    assert not Path(record.tmp_dir).exists()


def _alerts(on_call: AlertmanagerServer) -> list[dict[str, Any]]:
    return [alert for alert in on_call.alerts() if alert["labels"]["run"] == RUN]


def _check_what_is_told(chat: ChatService, on_call: AlertmanagerServer) -> None:
    text = chat.taken[0].json()["markdown"]["text"]
    assert "sft step 600" in chat.taken[0].json()["markdown"]["title"]
    assert "echo" in text
    assert "What is" in text  # a lost question
    assert "tracker compare" in text
    (alert,) = _alerts(on_call)
    labels = {name: alert["labels"][name] for name in ("alertname", "run", "subject", "kind")}
    assert labels == {"alertname": "CheckpointRegressed", "run": "sft", "subject": "echo", "kind": "loss"}


def _check_gate(project: Path) -> None:
    said = tracker(project, "gate", "600", "--baseline", "best", "--format", "json", code=1)
    assert json.loads(said)["result"]["word"] == "regression"


def _check_mlflow_and_report(project: Path) -> None:
    code = (
        "import sys, mlflow\n"
        "client = mlflow.MlflowClient(sys.argv[1])\n"
        "for alias in ('champion', 'best-echo'):\n"
        "    version = client.get_model_version_by_alias('sft', alias)\n"
        "    print(alias, client.get_logged_model(version.source.removeprefix('models:/')).params['step'])\n"
    )
    uri = f"sqlite:///{project / '.tracker' / 'mlflow.db'}"
    out = subprocess.run([sys.executable, "-c", code, uri], capture_output=True, text=True, check=True).stdout
    steps = dict(line.split() for line in out.splitlines()[-2:])
    assert set(steps) == {"champion", "best-echo"}
    assert all(int(step) <= 500 for step in steps.values())
    page = Path(tracker(project, "report").splitlines()[-1]).read_text()
    assert "regressed" in page
    assert "What is" in page
