"""`tracker incidents` and what other commands and pages say of the training, from logs of our own."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dashboards.page.run import write_report
from eval_jobs.errors import ConfigError
from eval_jobs.host.clock import SystemClock
from tests.tiny_model import write_checkpoint
from tracker.adapters.checkpoints.folder.once import pin_folder
from tracker.cli.commands.to_inspect import history, incidents
from tracker.config import load_config
from tracker.wiring.agent import follower_of
from tracker.wiring.project import Project

CONFIG = """
[run]
name = "sft"
output_dir = "out"
[[benchmark]]
benchmark = "exact"
data = "sums.jsonl"
[tracking]
enabled = false
"""
OOM = "[rank3]: torch.OutOfMemoryError: CUDA out of memory <b>{x}</b> \x1b[31m😀\n"


class Training:
    """A run without a checkpoint, whose logs an agent follows."""

    def __init__(self, home: Path) -> None:
        self.config = home / "tracker.toml"
        self.config.write_text(CONFIG)
        self.log = home / "out" / "train.log"
        self.of_b = home / "out" / "b" / "train.log"
        write_checkpoint(self.of_b.parent / "checkpoint-30")  # makes it a run of its own
        for log in (self.log, self.of_b):
            log.touch()
        project = Project(load_config(self.config))
        project.history  # noqa: B018 - makes the tables
        self.agent = follower_of(project.agent_settings(), project.database, SystemClock())
        self.agent.follow()
        self.project = project

    def write(self, *lines: str) -> None:
        with self.log.open("a", encoding="utf-8") as file:
            file.writelines(lines)
        self.agent.follow()

    def shown(self, *arguments: str) -> str:
        result = self.run(*arguments)
        assert result.exit_code == 0
        return " ".join(result.output.split())

    def run(self, *arguments: str) -> Result:
        given = [*arguments, "--config", str(self.config)]
        return CliRunner().invoke(incidents.command, given, catch_exceptions=False)


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Training]:
    monkeypatch.setenv("COLUMNS", "160")
    found = Training(tmp_path)
    yield found
    found.agent.log.close()
    found.project.database.dispose()


def steps(*numbers: int) -> list[str]:
    return [f"step {number} | loss: {3 - number / 100}\n" for number in numbers]


def test_before_a_log_was_read_the_list_says_what_is_read(training: Training) -> None:
    assert "no log was read yet: `tracker watch` follows those below run.output_dir" in training.shown()


def test_an_incident_is_listed_shown_and_dismissed(training: Training) -> None:
    training.write(*steps(10, 20), OOM)
    listed = training.shown()
    assert "GPU memory ran out on rank 3 at step 20" in listed
    assert "1 failure, 20 steps lost" in listed
    assert training.shown("sft") == training.shown("list", "sft") == listed
    (one,) = training.project.history.training_incidents("sft")
    shown = training.shown("show", one.id[:4])
    assert "train.log:3: [rank3]: torch.OutOfMemoryError: CUDA out of memory <b>{x}</b> 😀" in shown
    assert "hint use a smaller micro-batch" in shown
    assert "next nvidia-smi" in shown
    assert "dismissed: oom of sft" in training.shown("dismiss", one.id, "--reason", "known")
    assert "dismissed: known" in training.shown("--all")
    document = json.loads(training.run("--all", "--json").output)["result"]
    assert [(row["id"], row["ended_by"]) for row in document["incidents"]] == [(one.id, "dismissed")]
    assert document["failures"]["classes"] == [{"name": "oom", "incidents": 1, "open": 0}]


def test_what_is_over_and_deserved_no_alert_is_listed_with_all_only(training: Training) -> None:
    training.write("ConnectionError: Max retries exceeded with url: /api\n", *steps(10, 20, 30))
    assert training.shown() == "no training incident (see `tracker history` for losses) 1 more incident with --all"
    training.write(OOM)
    shown = training.shown("--all")
    assert "A request over the network failed over at step 30" in shown
    assert "1 network, 1 oom (1 open)" in shown
    assert "(1 open)" not in training.shown()


def test_each_run_is_counted_by_itself(training: Training) -> None:
    training.write(*steps(10, 20), OOM)
    training.log = training.of_b
    training.write(*steps(10, 40), OOM)
    saved, pins_dir = training.of_b.parent / "checkpoint-30", training.project.config.run.pins_dir
    pin_folder(saved, run_id="sft/b", pins_dir=pins_dir)
    shown = training.shown("--all")
    assert "sft: 1 oom (1 open); 1 failure, 20 steps lost" in shown
    assert "sft/b: 1 oom (1 open); 1 failure, 10 steps lost 2 oom (2 open) 2 failures, 30 steps lost" in shown
    assert "sft/b: 1 oom" not in training.shown()
    document = json.loads(training.run("--json").output)["result"]
    assert {name: one["lost_steps"] for name, one in document["runs"].items()} == {"sft": 20, "sft/b": 10}
    assert document["failures"]["hours_between"] is None  # of two runs


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("show", "zz"), "no incident has the id 'zz'"),
        (("dismiss", "zz", "--reason", "x"), "no incident has the id 'zz'"),
        (("dismiss", "zz", "--reason", " "), "--reason is empty"),
        (("list", "other"), "no run 'other'"),
    ],
)
def test_what_is_unknown_is_an_error_that_says_what_to_do(
    training: Training, arguments: tuple[str, ...], words: str
) -> None:
    training.write(*steps(10))
    with pytest.raises(ConfigError, match=words) as raised:
        training.run(*arguments)
    assert raised.value.hint


def test_a_run_that_dies_before_its_first_checkpoint_has_a_page(training: Training, tmp_path: Path) -> None:
    training.write(*steps(*range(10, 200, 10)), OOM)
    given = ["--config", str(training.config)]
    said = " ".join(CliRunner().invoke(history.command, given, catch_exceptions=False).output.split())
    assert "sft: no checkpoint evaluated yet; its logs are at step 190" in said
    assert "training: GPU memory ran out on rank 3 at step 190: lasts" in said
    page = write_report(training.config, named=None, output=tmp_path / "run.html").read_text()
    assert "Training loss" in page
    assert "GPU memory ran out on rank 3 at step 190" in page
    assert "&lt;b&gt;{x}&lt;/b&gt;" in page
    assert "\x1b" not in page
