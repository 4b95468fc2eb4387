"""The whole loop: folders of a training run in, verdicts and MLflow out, with a server that others run between."""

import json
import subprocess
import sys
from pathlib import Path

from tests.commands import tracker
from tests.fakes.openai_server import OpenAIServer, Reply
from tests.tiny_model import write_checkpoint, write_lora

CONFIG = """
[run]
name = "loop"
output_dir = "out"
[serve]
engine = "remote"
base_url = "{base_url}"
model = "step-{{step}}"
[suite]
max_tokens = 4
[[benchmark]]
benchmark = "exact"
data = "sums.jsonl"
[probe]
requests = 4
input_tokens = 16
output_tokens = 8
"""


def test_full_and_lora_checkpoints_in_sub_folders_go_from_disk_to_verdict_and_mlflow(tmp_path: Path) -> None:
    full = write_checkpoint(tmp_path / "out" / "v0-full" / "checkpoint-10", seed=1)
    write_lora(full, tmp_path / "out" / "v1-lora" / "checkpoint-20")
    (tmp_path / "out" / "v0-full" / "last-checkpoint").symlink_to(full)
    rows = [{"question": f"{i}+1", "answer": str(i + 1)} for i in range(5)]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with OpenAIServer(lambda _: Reply(text="1"), model="step-10", more_models=("step-20",)) as server:
        (tmp_path / "tracker.toml").write_text(CONFIG.format(base_url=server.base_url))
        watched = tracker(tmp_path, "watch", "--until-idle")

    assert "2 checkpoints evaluated, 0 not evaluated" in watched
    reports = {r["run_id"]: r for r in json.loads(tracker(tmp_path, "history", "--json"))["result"]["reports"]}
    assert {name: r["step"] for name, r in reports.items()} == {"loop/v0-full": 10, "loop/v1-lora": 20}
    assert all(r["verdicts"][0]["coverage"] == 1.0 for r in reports.values())
    assert _models_and_latency(tmp_path) == {"models": 2, "has_latency": True}
    tracker(tmp_path, "report", "loop/v1-lora")


def _models_and_latency(project: Path) -> dict[str, object]:
    """Ask the MLflow store from another process: importing MLflow changes this one's logging."""
    code = (
        "import json, sys, mlflow\n"
        "client = mlflow.MlflowClient(sys.argv[1])\n"
        "ids = [e.experiment_id for e in client.search_experiments()]\n"
        "models = client.search_logged_models(ids)\n"
        "keys = {m.key for model in models for m in model.metrics or []}\n"
        "print(json.dumps({'models': len(models), 'has_latency': 'perf/ttft_ms_p50' in keys}))"
    )
    uri = f"sqlite:///{project / '.tracker' / 'mlflow.db'}"
    out = subprocess.run([sys.executable, "-c", code, uri], capture_output=True, text=True, check=True).stdout
    found: dict[str, object] = json.loads(out.splitlines()[-1])
    return found
