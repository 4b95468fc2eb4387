"""Location and version of the installed lm-evaluation-harness, found without importing it."""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from eval_jobs.errors import ConfigError
from eval_jobs.host.secrets import passed_on

HINT = "run `pip install 'lm-eval[api]'` in an environment, and set suite.lm_eval to its `lm_eval` command"
TIMEOUT_S = 120.0
_CODE = """
import importlib.metadata, importlib.util, sys
print(importlib.metadata.version("lm_eval"))
print("Python 3.11" if sys.version_info < (3, 11) else "" if importlib.util.find_spec("httpx") else "httpx")
"""


def found_command(command: str) -> str:
    """Return the path of the command, searched for next to this program's Python and in PATH.

    Raises:
        ConfigError: it is not found.
    """
    beside = Path(sys.executable).parent / command
    path = str(beside) if "/" not in command and beside.is_file() else shutil.which(command)
    if path is None:
        raise ConfigError(f"cannot find {command!r}, required by benchmarks with evaluator = `lm-eval`", hint=HINT)
    return path


@cache
def installed_version(command: str) -> str:
    """Return `lm-eval` and its version in the environment of that command.

    Raises:
        ConfigError: it cannot be determined, or the environment lacks Python 3.11 or httpx.
    """
    python = Path(command)
    try:
        python = python_of(python)
        # -I: another Python must not import modules of this environment.
        done = subprocess.run(
            [python, "-I", "-c", _CODE],
            capture_output=True,
            text=True,
            check=True,
            timeout=TIMEOUT_S,
            env=passed_on(os.environ),
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(f"cannot determine the lm-eval version of {python}: {error}", hint=HINT) from error
    version, lacks = done.stdout.split("\n")[:2]
    if lacks:
        raise ConfigError(f"the evaluator needs {lacks}, missing in {python}", hint="use an environment that has it")
    return f"lm-eval {version}"


def python_of(command: Path) -> Path:
    """Return the Python in a script's first line, else the one next to the script, with links resolved."""
    with command.open("rb") as file:
        words = file.readline().decode(errors="replace").removeprefix("#!").split()
    named = Path(words[0]) if len(words) == 1 else Path()
    if "python" in named.name:
        return named
    return command.resolve().parent / "python"
