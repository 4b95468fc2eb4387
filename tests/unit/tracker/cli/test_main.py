"""The command line answers quickly, in words, and with the documented exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TRACKER = Path(sys.executable).parent / "tracker"
HEAVY = ("mlflow", "pandas", "numpy", "scipy", "sqlalchemy", "plotly", "pydantic", "openai", "rich.live")


def tracker(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(TRACKER), *arguments], capture_output=True, text=True, check=False, cwd=cwd)


def test_help_lists_every_command_and_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['tracker', '--help']\n"
        "from tracker.cli.main import main\n"
        "try: main()\n"
        f"finally: print([m for m in {HEAVY} if m in sys.modules], file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stderr.strip() == "[]"
    for name in ("init", "watch", "run", "history", "compare", "forgetting", "ui", "report"):
        assert f"\n  {name} " in result.stdout


@pytest.mark.parametrize("name", ["init", "watch", "run", "history", "compare", "forgetting", "ui", "report"])
def test_every_command_explains_itself_in_at_most_six_options(name: str) -> None:
    result = tracker(name, "--help")
    assert result.returncode == 0
    options = [line for line in result.stdout.splitlines() if line.startswith("  -") and "--help" not in line]
    assert 1 <= len(options) <= 6


def test_an_unknown_command_names_the_known_ones() -> None:
    result = tracker("wach")
    assert result.returncode == 2
    assert "watch" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "arguments", [["watch"], ["history"], ["compare", "1", "2"], ["forgetting"], ["ui"], ["report"]]
)
def test_without_a_configuration_each_command_says_how_to_make_one(arguments: list[str], tmp_path: Path) -> None:
    result = tracker(*arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert "E-CONFIG" in result.stderr
    assert "tracker init" in result.stderr
    assert "Traceback" not in result.stderr


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    assert "Traceback" in tracker("--debug", "watch", cwd=tmp_path).stderr


def test_the_version_is_the_distributions() -> None:
    assert tracker("--version").stdout.startswith("tracker, version ")
