"""`tracker compare RUN_A RUN_B` over a real history on disk."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.commands import run_tracker
from tests.compared_runs import project_of_two_runs
from tests.json_output import result_of
from tracker.cli.main import cli

RUNS = ("tiny-forgetting", "slower")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return project_of_two_runs(tmp_path_factory.mktemp("project")).parent


@pytest.fixture(autouse=True)
def _there(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setenv("COLUMNS", "80")


def compare(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["compare", *arguments])


def test_two_runs_are_shown_side_by_side_in_80_columns() -> None:
    said = compare(*RUNS)
    assert said.exit_code == 0, said.output
    assert [line.rstrip() for line in said.stdout.splitlines()] == ""


def test_json_has_every_number_of_the_table() -> None:
    found = result_of(compare(*RUNS, "--json").stdout)
    facts = found["benchmarks"][0]
    assert (found["a"]["run_id"], found["b"]["best_step"], found["by"]) == ("tiny-forgetting", 700, "step")
    assert [row["a"] and row["a"]["step"] for row in facts["rows"]] == [100, 200, 300, 400, 500, 600, 700]
    assert facts["rows"][0]["difference"] is None
    assert facts["best"]["difference"]["n"] == 40


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("slower", "nope"), "no run 'nope'"),
        (("slower", "slower"), "a run cannot be compared with itself"),
        (("slower", "latest"), "invalid checkpoint reference 'slower'"),
        ((*RUNS, "--mlflow"), "--mlflow requires checkpoints"),
        ((*RUNS, "--by", "tokens"), "the trainer of tiny-forgetting logged no token counts"),
    ],
)
def test_what_is_not_two_runs_is_a_usage_error(project: Path, arguments: tuple[str, ...], said: str) -> None:
    done = run_tracker(project, "compare", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
