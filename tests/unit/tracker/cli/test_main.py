"""The command line answers quickly, in words, and with the documented exit codes."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from eval_jobs.errors import ConfigError
from tests.records import FORGETTING_TOML, forgetting_run
from tracker.api.opening import open_project
from tracker.cli.main import GROUPS, cli

RUN = forgetting_run(samples=8)
TRACKER = Path(sys.executable).parent / "tracker"
HEAVY = ("mlflow", "pandas", "numpy", "scipy", "sqlalchemy", "plotly", "pydantic", "openai", "rich.live")


def tracker(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(TRACKER), *arguments], capture_output=True, text=True, check=False, cwd=cwd)


def test_help_lists_every_command_in_its_group_and_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['tracker', '--help']\n"
        "from tracker.cli.main import main\n"
        "try: main()\n"
        f"finally: print([m for m in {HEAVY} if m in sys.modules], file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stderr.strip() == "[]"
    titles = [line for line in result.stdout.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["Options:", *(f"{title}:" for title in GROUPS)]
    for title, commands in GROUPS.items():
        _, _, group = result.stdout.partition(f"\n{title}:\n")
        listed = [line.split()[0] for line in group.partition("\n\n")[0].splitlines()]
        assert listed == list(commands)


def test_every_command_explains_itself_in_at_most_six_options() -> None:
    for name in ("init", "watch", "evaluate", "history", "compare", "forgetting", "ui", "report"):
        result = CliRunner().invoke(command(name), ["--help"])
        assert result.exit_code == 0, name
        options = [line for line in result.stdout.splitlines() if line.startswith("  -") and "--help" not in line]
        assert 1 <= len(options) <= 6, name


def command(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


def test_an_unknown_command_names_the_known_ones() -> None:
    result = tracker("wach")
    assert result.returncode == 2
    assert "watch" in result.stderr
    assert "Traceback" not in result.stderr


def test_without_a_configuration_each_command_says_how_to_make_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, *arguments in (["watch"], ["history"], ["compare", "1", "2"], ["forgetting"], ["ui"], ["report"]):
        failure = CliRunner().invoke(command(name), arguments).exception
        assert isinstance(failure, ConfigError), name
        assert (failure.code, failure.exit_code) == ("E-CONFIG", 2), name
        assert "tracker init" in failure.hint, name


@pytest.mark.slow
def test_a_line_break_in_the_name_of_a_file_makes_no_second_message(tmp_path: Path) -> None:
    (tmp_path / "tracker.toml").write_text(
        '[run]\nname = "r"\noutput_dir = "out"\n[tracking]\nenabled = false\n'
        '[[benchmark]]\nbenchmark = "exact"\nname = "q"\ndata = "a\\nerror E-STORE: all is lost"\n'
    )
    result = tracker("watch", "--until-idle", cwd=tmp_path)
    assert result.returncode == 2
    said = [line for line in result.stderr.splitlines() if "E-" in line]
    assert len(said) == 1
    assert said[0].partition(" ")[2].startswith("error E-EVAL-DATA: ")
    assert "a error E-STORE: all is lost" in said[0]


@pytest.mark.slow
def test_debug_shows_the_traceback_and_keeps_the_exit_code(tmp_path: Path) -> None:
    done = tracker("--debug", "history", cwd=tmp_path)
    assert "Traceback" in done.stderr
    quiet = tracker("history", cwd=tmp_path)
    assert "E-CONFIG" in quiet.stderr
    assert "tracker init" in quiet.stderr
    assert "Traceback" not in quiet.stderr
    assert done.returncode == quiet.returncode == 2


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_ends_a_command_quietly(tmp_path: Path) -> None:
    (tmp_path / "tracker.toml").write_text(FORGETTING_TOML)
    history = open_project(tmp_path / "tracker.toml").history
    for record, report in zip(RUN.records, RUN.reports, strict=True):
        history.append(record)
        history.append_reports(report)
    for arguments in (["--help"], ["history", "--json"]):
        reading, writing = os.pipe()
        os.close(reading)
        done = subprocess.run(
            [str(TRACKER), *arguments], stdout=writing, stderr=subprocess.PIPE, text=True, check=False, cwd=tmp_path
        )
        os.close(writing)
        assert (done.stderr, done.returncode) == ("", 141), arguments


def test_a_pipe_that_breaks_elsewhere_is_a_failure_and_no_regression() -> None:
    code = (
        "import sys; sys.argv = ['tracker', 'history']\n"
        "from tracker.cli import main\n"
        "def broken(**options): raise BrokenPipeError(32, 'Broken pipe')\n"
        "main.cli.main = broken\n"
        "main.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert "BrokenPipeError" in done.stderr


def test_the_version_is_the_distributions() -> None:
    assert tracker("--version").stdout.startswith("tracker, version ")
