"""The benchmark of a large project runs, on a small one: its figures are for people."""

import subprocess
import sys


def test_the_benchmark_measures_everything_that_is_promised() -> None:
    command = [sys.executable, "-m", "benchmarks.scale", "--quick", "--runs"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for what in (
        "a sample: its score, in files",
        "a sample: with blocks and folders",
        "tracker history RUN",
        "adding a checkpoint, then",
        "one more checkpoint: its verdicts",
        "importing 5 means: one of the last of",
        "idle watch of 50 files, with file events",
        "idle watch of 50 files, polling",
    ):
        assert what in done.stdout
