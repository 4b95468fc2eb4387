"""Samples in polars, which only one process finds on its path: where it is installed, `datasets` imports it too."""

import os
import subprocess
import sys

from benchmarks.versions.environments import overlay
from tests.requires import PROJECT

VERSIONS = ("2.1.0",)
_SAME = "the samples of a project equal those in pandas"
_PROGRAM = f"""
import sys, tempfile
from pathlib import Path
import polars
import tracker
from eval_jobs.queue.database_sql import open_database
from tests.records import forgetting_run
from tests.stored import store_run
from tracker.adapters.history.store_sql import SqlHistory

with tempfile.TemporaryDirectory() as place:
    engine = open_database(f"sqlite:///{{place}}/tracker.db")
    store_run(SqlHistory(engine, Path(place) / "samples"), forgetting_run(checkpoints=6, samples=20))
    engine.dispose()
    samples = tracker.open(place).samples(texts=True)
    expected = samples.to_pandas()
    found = polars.from_arrow(samples.reader())
    assert found.columns == list(expected), found.columns
    for name in expected:
        rows = expected[name].astype(object).where(expected[name].notna(), None).tolist()
        assert found[name].to_list() == rows, name
print("{_SAME}")
"""


def checked(version: str) -> str:
    """Return what was compared, or the last line of the error."""
    before = overlay(f"polars-{version}", f"polars=={version}", f"polars-runtime-32=={version}")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (PROJECT, before)))}
    command = [sys.executable, "-c", _PROGRAM]
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)
    return (done.stdout.strip() or done.stderr.strip()).splitlines()[-1]


def is_good(result: str) -> bool:
    """Return whether all columns were equal."""
    return result == _SAME
