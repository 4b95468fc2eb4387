"""A watcher that could only fail waits, and takes over corrected settings while it runs."""

import json
import re
import signal
import threading
from collections import Counter
from pathlib import Path

from tests.commands import RunningTracker, run_tracker, write_project
from tests.fakes.openai_server import OpenAIServer, Reply
from tests.json_output import result_of
from tests.tiny_model import write_checkpoint

SWEEP = '[[schedule]]\nname = "all"\ncheckpoints = ["all"]\n'
RULE = '[[health.rule]]\nname = "bad_batch"\npattern = "skipping batch"\n'
TIMED = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ ")
EVALUATING = (
    ("watch", "--until-idle"),
    ("evaluate", "out/checkpoint-100"),
    ("backfill", "out"),
    ("sweep", "run", "all"),
    ("gate", "out/checkpoint-100", "--baseline", "out/checkpoint-100"),
)


def write_settings(project: Path, url: str, *, engine: str = "remote", more: str = "", wait_s: int = 600) -> None:
    write_project(project, url, rows=4, more=f"reask_wait_s = {wait_s}\n")
    for data in (project / "sums.jsonl", project / "facts.jsonl"):
        data.write_text(data.read_text() + data.read_text().partition("\n")[0] + "\n")
    file = project / "tracker.toml"
    file.write_text(file.read_text().replace('engine = "remote"', f'engine = "{engine}"') + more)


def repeated(said: str) -> Counter[str]:
    """Return how often rows that repeat were named, by benchmark."""
    return Counter(re.findall(r"benchmark (\w+): \S+: \d+ rows? repeat", said))


def check_log(said: str) -> None:
    """No event is logged again when the settings change, and every line has a time."""
    assert repeated(said) == {"sums": 1, "facts": 1}, said
    assert (said.count("no chat template"), said.count("found step 100")) == (1, 1), said
    assert all(TIMED.match(line) for line in said.splitlines() if line), said


def check_commands(project: Path, url: str) -> None:
    """Also commands that read the settings and the data several times say it once."""
    write_settings(project, url, more=SWEEP)
    for command in EVALUATING[-2:]:
        assert repeated(run_tracker(project, *command).stderr) == {"sums": 1, "facts": 1}, command


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
            until_evaluated_twice(running)
            (tmp_path / "out" / "train.log").write_text("step 1 | loss 2.5\nskipping batch 7\n")
            running.until_said("bad batch at step 1")
            (tmp_path / "tracker.toml").write_text("[run\n")
            running.until_said("the previous settings stay in use: E-CONFIG")
            assert running.stop(signal.SIGINT) == 130
            check_log(running.said())
        finally:
            running.kill_all()
        the_log_says_what_changed(tmp_path, server.base_url)
        check_commands(tmp_path, server.base_url)


def until_evaluated_twice(running: RunningTracker) -> None:
    pause = threading.Event()
    while running.said().count("evaluated step 100") < 2:
        assert running.poll() is None, running.said()
        pause.wait(0.1)


def the_log_says_what_changed(project: Path, url: str) -> None:
    write_settings(project, url)
    assert run_tracker(project, "silence", "sums", "--for", "4h", "--reason", "known").returncode == 0
    events = result_of(run_tracker(project, "log", "--json").stdout)
    said = run_tracker(project, "log").stdout.splitlines()
    assert [line.split("  ")[0] for line in said] == [f"{e['at'][:10]} {e['at'][11:19]}" for e in events]
    kinds = [event["kind"] for event in events]
    for kind in ("started", "found", "setting", "evaluated", "alert", "stopped", "silenced"):
        assert kind in kinds, said
    assert (kinds[0], kinds.count("started"), kinds.count("found"), kinds[-2:]) == (
        *("started", 1, 1),
        ["stopped", "silenced"],
    )
    assert said[-2].endswith("stopped    interrupted")
    for change in ('serve.engine: "vllm" → "remote"', "benchmark.facts.limit: not set → 2"):
        assert any(line.endswith(f"setting    {change}") for line in said), said
    assert url not in json.dumps(events)
