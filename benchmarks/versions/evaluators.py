"""The contract of evaluators over other versions of EvalScope, put before the one that is installed."""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

from benchmarks.versions.environments import overlay
from tests.requires import PROJECT

VERSIONS = ("1.13.0",)
CONTRACT = "tests/contract/test_evaluator.py"


def checked(version: str) -> str:
    """Return how many tests passed."""
    before = overlay(f"evalscope-{version}", f"evalscope=={version}")
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        subprocess.run(
            [sys.executable, "-m", "pytest", "-n", "0", CONTRACT, f"--junitxml={report}"],
            cwd=PROJECT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (PROJECT, before)))},
            stdout=subprocess.DEVNULL,
            check=False,
        )
        suite = next(ElementTree.parse(report).getroot().iter("testsuite"))  # noqa: S314 - pytest wrote it
    count, failed = int(suite.attrib["tests"]), int(suite.attrib["failures"]) + int(suite.attrib["errors"])
    return f"{count - failed} of {count} contract tests passed"


def is_good(result: str) -> bool:
    """Return whether all tests passed."""
    passed, _, rest = result.partition(" of ")
    return passed == rest.split()[0]
