"""A watcher that could only fail waits, and takes over corrected settings while it runs."""

import json
import signal
import threading
from pathlib import Path

from tests.commands import RunningTracker, run_tracker, write_project
from tests.fakes.openai_server import OpenAIServer, Reply
from tests.tiny_model import write_checkpoint

SWEEP = '[[schedule]]\nname = "all"\ncheckpoints = ["all"]\n'
RULE = '[[health.rule]]\nname = "bad_batch"\npattern = "skipping batch"\n'
EVALUATING = (
    ("watch", "--until-idle"),
    ("evaluate", "out/checkpoint-100"),
    ("backfill", "out"),
    ("sweep", "run", "all"),
    ("gate", "out/checkpoint-100", "--baseline", "out/checkpoint-100"),
)


def write_settings(project: Path, url: str, *, engine: str = "remote", more: str = "", wait_s: int = 600) -> None:
    write_project(project, url, rows=4, more=f"reask_wait_s = {wait_s}\n")
    file = project / "tracker.toml"
    file.write_text(file.read_text().replace('engine = "remote"', f'engine = "{engine}"') + more)


def test_evaluations_wait_for_settings_that_can_work_and_follow_later_changes(tmp_path: Path) -> None:
    saved = write_checkpoint(tmp_path / "out" / "checkpoint-100")
    config = saved / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"chat_template": None}))
    with OpenAIServer(lambda _: Reply(text="1"), model="step-100") as server:
        write_settings(tmp_path, server.base_url, engine="vllm", more=SWEEP)
        for command in EVALUATING:
            refused = run_tracker(tmp_path, *command)
            assert (refused.returncode, "no chat template in " in refused.stderr) == (2, True), command
        assert server.requests == []
        running = RunningTracker(tmp_path, "watch", output=tmp_path / "said")
        try:
            running.until_said("evaluations wait until this is fixed")
            assert [*(tmp_path / ".tracker" / "pins").rglob("model.safetensors")], "it is pinned meanwhile"
            write_settings(tmp_path, server.base_url)
            running.until_said("the new settings are in use")
            running.until_said("evaluated step 100")
            write_settings(tmp_path, server.base_url, more=f"limit = 2\n{RULE}")
            running.until_said("or now with `tracker watch --yes`")
            write_settings(tmp_path, server.base_url, more=f"limit = 2\n{RULE}", wait_s=0)
            pause = threading.Event()
            while running.said().count("evaluated step 100") < 2:
                assert running.poll() is None, running.said()
                pause.wait(0.1)
            (tmp_path / "out" / "train.log").write_text("step 1 | loss 2.5\nskipping batch 7\n")
            running.until_said("bad batch at step 1")
            (tmp_path / "tracker.toml").write_text("[run\n")
            running.until_said("the previous settings stay in use: E-CONFIG")
            assert running.stop(signal.SIGINT) == 130
        finally:
            running.kill_all()
