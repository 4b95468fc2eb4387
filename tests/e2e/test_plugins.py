"""Packages that bring an engine, an evaluator, a channel and a checkpoint source, used and broken in every way."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import trainer
from tests.plugins import EXAMPLE, SERVER, environment, installed, written
from tracker.config import load_config
from tracker.wiring.project import Project

TRACKER = Path(sys.executable).parent / "tracker"
CONFIG = f"""
[run]
name = "sft"
source = "list"
output_dir = "folders.txt"
[serve]
engine = "command"
options = {{ command = "{SERVER}" }}
[suite]
max_tokens = 8
[[benchmark]]
benchmark = "capitals"
evaluator = "first-line"
data = "capitals.jsonl"
[probe]
enabled = false
[tracking]
enabled = false
[[alerts.channel]]
name = "log"
kind = "append"
options = {{ path = "./alerts.jsonl" }}
"""
CAPITALS = {"France": "Paris", "Spain": "Madrid", "Italy": "Rome", "Peru": "Lima"}


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(EXAMPLE, tmp_path_factory.mktemp("installed"))


@dataclass
class Home:
    """A project folder."""

    folder: Path
    packages: tuple[Path, ...]

    def configure(self, old: str = "", new: str = "") -> None:
        """Write the configuration, one text replaced."""
        assert old in CONFIG
        (self.folder / "tracker.toml").write_text(CONFIG.replace(old, new))

    def tracker(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command."""
        return subprocess.run(
            [str(TRACKER), *arguments],
            cwd=self.folder,
            env=environment(*self.packages),
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )  # fmt: skip

    def refused(self, *arguments: str) -> str:
        """Run a command that must end with exit code 2 and without a traceback, and return what it said."""
        done = self.tracker(*arguments)
        assert done.returncode == 2, done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr


@pytest.fixture
def home(tmp_path: Path, example: Path) -> Home:
    rows = [{"question": country, "answer": city} for country, city in CAPITALS.items()]
    (tmp_path / "capitals.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    home = Home(tmp_path, (example,))
    home.configure()
    return home


def add_checkpoint(home: Home, step: int, known: dict[str, str]) -> Path:
    folder = trainer.save(home.folder / "out", step, seed=step)
    (folder / "answers.txt").write_text("".join(f"{question}={answer}\n" for question, answer in known.items()))
    with (home.folder / "folders.txt").open("a") as file:
        file.write(f"out/{folder.name}\n")
    return folder


def test_a_run_is_found_served_scored_and_alerted_by_plugins(home: Home) -> None:
    add_checkpoint(home, 100, CAPITALS)
    add_checkpoint(home, 200, CAPITALS | {"Peru": "Quito"})
    done = home.tracker("watch", "--until-idle")
    assert done.returncode in {0, 3}, done.stderr
    records = Project(load_config(home.folder / "tracker.toml")).history.records("sft")
    programs = [plan.serve.program for plan in (record.plan for record in records)]
    programs += [b.program for record in records for b in record.plan.suite.benchmarks]
    assert {program.version for program in programs if program is not None} == {"tracker-example 1.0"}
    assert len(programs) == 4
    scores = home.tracker("history").stdout
    assert "75" in scores
    assert "100" in scores
    assert home.tracker("alerts", "test", "log").returncode == 0
    (line,) = (home.folder / "alerts.jsonl").read_text().splitlines()
    assert json.loads(line)["alerts"]
    assert not list(home.folder.rglob("plugins/engines/*/*.pid"))


def test_one_broken_package_leaves_the_help_and_all_other_commands_whole(home: Home) -> None:
    names = ("tracker.commands:shine", "tracker.commands:watch", "tracker.commands:report", "tracker.engines:vllm")
    points = dict.fromkeys(names, "E")
    package = written(home.folder / "acme", points=points, code="print('loud')\nimport nowhere_to_be_found")
    home.packages = (*home.packages, package)
    helped = home.tracker("--help")
    assert helped.returncode == 0
    assert "shine       (plugin: acme 1.0)" in helped.stdout
    assert "loud" not in helped.stdout, "nothing of another package is imported for the help"
    assert helped.stdout.count(" watch ") == helped.stdout.count(" report ") == 1
    assert "ModuleNotFoundError" in home.refused("shine")
    other = written(home.folder / "umbra", points={"tracker.commands:shine": "E"}, code="")
    home.packages = (*home.packages, other)
    assert "several packages provide the command `shine`: acme 1.0, umbra 1.0" in home.refused("shine")
    report = home.tracker("report", "--help")
    assert (report.returncode, "HTML" in report.stdout, "noise" in report.stdout) == (0, True, False)


def test_an_evaluator_that_raises_fails_its_benchmark_and_names_its_package(home: Home) -> None:
    code = (
        "class E:\n    def __init__(self, *a): pass\n    def evaluate(self, *a, **k): raise RuntimeError('boom')\n"
        "    prepare = forget = close = lambda self, *a, **k: None\n    def kept(self): return 1 / 0\n"
    )
    package = written(home.folder / "acme", points={"tracker.evaluators:acme": "E"}, code=code)
    home.packages = (*home.packages, package)
    home.configure('"first-line"', '"acme"')
    done = home.tracker("evaluate", str(add_checkpoint(home, 100, CAPITALS)))
    assert done.returncode == 4
    said = " ".join((done.stdout + done.stderr).split())
    assert "evaluator `acme` of acme 1.0 failed: RuntimeError: boom" in said
    assert "Traceback" not in said
