"""Which versions of MLflow, EvalScope, polars and vLLM work with the tracker: a table with today's date.

    python -m benchmarks.versions [--vllm]        or: make test-versions, VLLM=1 make test-versions

Each version gets an environment of its own in build/versions, from the package index of this machine. vLLM's are large
and take minutes each, so they are only tried on demand. Exit code 1: a version does not work, or cannot be installed.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from benchmarks.versions import engines, evaluators, mlflow_servers, readers
from benchmarks.versions.environments import CannotInstall


def main() -> int:
    """Print the table, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", action="store_true", help="try versions of vLLM, too")
    parser.add_argument("--only", default="", help="only what begins with this, for example `MLflow server 3.18`")
    options = parser.parse_args()
    checks: list[tuple[str, Sequence[str], Callable[[str], str], Callable[[str], bool]]] = [
        ("MLflow server", tuple(mlflow_servers.SERVERS), mlflow_servers.checked, mlflow_servers.is_good),
        ("EvalScope", evaluators.VERSIONS, evaluators.checked, evaluators.is_good),
        ("polars", readers.VERSIONS, readers.checked, readers.is_good),
    ]
    if options.vllm:
        checks.append(("vLLM", engines.VERSIONS, engines.checked, engines.is_good))
    print(f"| Version ({datetime.now(UTC):%Y-%m-%d}) | Result |\n|---|---|", flush=True)
    worst = 0
    for what, versions, checked, is_good in checks:
        for version in versions:
            if f"{what} {version}".startswith(options.only):
                result, works = _row(version, checked, is_good)
                print(f"| {what} {version} | {result} |", flush=True)
                worst = max(worst, int(not works))
    return worst


def _row(version: str, checked: Callable[[str], str], is_good: Callable[[str], bool]) -> tuple[str, bool]:
    try:
        result = checked(version)
    except CannotInstall as error:
        return f"not installable here: {error}", False
    return result, is_good(result)


if __name__ == "__main__":
    sys.exit(main())
