"""`tracker sweep` as a user has it: real workers and the real evaluator, and a server whose answers we know."""

import json
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.commands import RunningTracker, run_tracker, tracker, write_project
from tests.fakes.openai_server import OpenAIServer, Reply, Request
from tests.json_output import result_of
from tests.tiny_model import write_checkpoint

ROWS = 20
WRONG = {"step-100": 10, "step-200": 5, "big": 0}
"""Questions that each model answers wrongly at temperature 0 and asked plainly."""
STOP_AT = 15
"""Answers to a sweep after which its command is killed."""
SCHEDULE = """
[[schedule]]
name = "nightly"
cron = "0 2 * * *"
time_zone = "Europe/Berlin"
checkpoints = ["all", "ghost@latest"]
benchmarks = ["sums"]
[schedule.matrix]
temperature = [0.0, 1.0]
prompt = ["plain", "polite"]
[schedule.prompts]
plain = ""
polite = "please: {question}"
[schedule.load]
concurrency = [1, 2]
requests = 4
input_tokens = 16
output_tokens = 4
[[schedule.endpoint]]
name = "the big one"
base_url = "URL"
model = "big"
[[schedule]]
name = "too-large"
checkpoints = ["all"]
max_evaluations = 1
[[schedule]]
name = "of nothing"
checkpoints = ["ghost@latest"]
"""


@dataclass
class Script:
    """Answers as `WRONG` says; one more answer is wrong at a temperature, and none to who says please."""

    sweeping: int = 0
    """Answers that no evaluation of the run would ask for."""
    may_go_on: threading.Event = field(default_factory=threading.Event)
    is_under_way: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, request: Request) -> Reply:
        body, words = request.body, request.prompt.split()
        if body.get("stream"):
            return Reply(tokens=tuple("abcd"), finish_reason="length", prompt_tokens=16)
        is_polite, number = words[0] == "please:", int(words[-1])
        if is_polite or body["temperature"]:
            self._hold()
        wrong = 0 if is_polite else WRONG[body["model"]] + (body["temperature"] > 0)
        return Reply(text="no idea" if number < wrong else str(number))

    def _hold(self) -> None:
        with self.lock:
            self.sweeping += 1
            is_enough = self.sweeping >= STOP_AT
        if is_enough:
            self.is_under_way.set()
            self.may_go_on.wait(240)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Steps 100 and 200 are evaluated; a sweep of them was killed in the middle."""
    folder, script = tmp_path_factory.mktemp("swept"), Script()
    with OpenAIServer(script, model="step-100", more_models=("step-200", "big")) as server:
        write_project(folder, server.base_url, rows=ROWS)
        file = folder / "tracker.toml"
        file.write_text(file.read_text() + SCHEDULE.replace("URL", server.base_url))
        for step in (100, 200):
            write_checkpoint(folder / "out" / f"checkpoint-{step}", seed=step)
        tracker(folder, "watch", "--until-idle")
        (folder / "before.json").write_text(tracker(folder, "history", "--json"))
        _kill_in_the_middle(folder, script)
        yield folder


def _kill_in_the_middle(folder: Path, script: Script) -> None:
    sweep = RunningTracker(folder, "sweep", "run", "nightly", output=folder / "said")
    assert script.is_under_way.wait(240)
    sweep.stop(signal.SIGKILL)
    script.may_go_on.set()


def test_a_killed_sweep_goes_on_and_ends_as_if_nothing_had_been(project: Path) -> None:
    said = tracker(project, "sweep", "run", "nightly", code=3)  # a run that nobody knows was not asked
    assert "ghost@latest: no pinned checkpoint of ghost" in said
    board = json.loads(tracker(project, "sweep", "show", "nightly", "--json"))["result"]
    means = {(row["target"], *(value for _, value in row["variant"])): row["mean"] for row in board["rows"]}
    assert means == {
        (target, temperature, prompt): pytest.approx(
            1.0 if prompt == "polite" else 1 - (WRONG[model] + (temperature == "1")) / ROWS
        )
        for target, model in (("r@100", "step-100"), ("r@200", "step-200"), ("the big one", "big"))
        for temperature in ("0", "1")
        for prompt in ("plain", "polite")
    }
    assert [row["mean"] for row in board["rows"]] == sorted(means.values(), reverse=True)
    assert board["unanswered"] == 0
    loads = {curve["target"]: [probe["load"]["concurrency"] for probe in curve["probes"]] for curve in board["curves"]}
    assert loads == {target: [1, 2] for target in ("r@100", "r@200", "the big one")}
    shown = tracker(project, "sweep", "show", "nightly")
    assert "latency of the big one" in shown
    listed = tracker(project, "sweep", "list")
    assert listed.count("on demand, done, 12 evaluations") == 1


def test_nothing_of_a_sweep_is_in_the_history_of_the_run(project: Path) -> None:
    assert tracker(project, "history", "--json") == (project / "before.json").read_text()
    report = Path(tracker(project, "report").strip().splitlines()[-1]).read_text()
    assert 'id="sweeps"' in report
    assert "the big one" in report


def test_a_dry_run_says_what_it_would_cost_and_asks_nothing(project: Path) -> None:
    before = tracker(project, "sweep", "list")
    said = tracker(project, "sweep", "run", "nightly", "--dry-run")
    assert "12 evaluations of 3 targets" in said
    assert "offline" not in said
    file = project / "tracker.toml"
    file.write_text(file.read_text().replace('model = "big"', 'model = "bigger"'))
    gone = " ".join(tracker(project, "sweep", "run", "nightly", "--dry-run").split())
    assert "offline the big one: " in gone
    assert "does not serve bigger (available: step-100, step-200, big)" in gone
    file.write_text(file.read_text().replace('model = "bigger"', 'model = "big"'))
    assert tracker(project, "sweep", "list") == before


def test_what_cannot_be_carried_out_is_refused_in_words(project: Path) -> None:
    assert "did you mean nightly?" in tracker(project, "sweep", "run", "nightli", code=2)
    assert "needs 2 evaluations" in tracker(project, "sweep", "run", "too-large", code=2)
    assert "no pinned checkpoint of ghost" in tracker(project, "sweep", "run", "of nothing", code=3)
    assert "ghost" in result_of(run_tracker(project, "sweep", "run", "of nothing", "--json").stdout)["note"]
    assert "no results of sweep too-large yet" in tracker(project, "sweep", "show", "too-large", code=2)
