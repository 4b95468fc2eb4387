"""The benchmark of verdicts as its command, over small benchmarks."""

import subprocess
import sys

from benchmarks.verdicts.detector import DEFAULT
from tests.requires import PROJECT
from tests.unit.benchmarks.verdicts.test_campaign import SUMMARY


def test_the_command_ends_with_the_rates_of_the_engine() -> None:
    command = [sys.executable, "-m", "benchmarks.verdicts", "--only", f"{DEFAULT},bh", "--sizes", "100,100"]
    done = subprocess.run(
        [*command, "--null", "1", "--power", "0", "--procs", "1"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert SUMMARY.fullmatch(done.stdout.splitlines()[-1])
    assert "simulated runs" in done.stderr
