"""What results in Python take: CPU seconds and memory of new processes, on made-up projects.

    python -m benchmarks.frames [--runs 1000] [--checkpoints 100]

Two projects: narrow rows of `--runs` runs of 100 checkpoints and 20 benchmarks, and one run of `--checkpoints`
checkpoints with 20 benchmarks of 1,000 samples. CPU time is that of the processor, start of Python included where
a line names a new process; other work on the machine changes it less than the time on the clock.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

import numpy as np
from rich.console import Console
from rich.table import Table
from sqlalchemy import Engine, insert

from benchmarks.scale_data import Size, record_at
from eval_jobs.queue.database_sql import open_database, transaction
from tracker.adapters.database.tables import EVALUATIONS, MEASURED, SUBJECTS
from tracker.adapters.history.store_sql import SqlHistory

BENCHMARKS, STEPS = 20, 100
START = datetime(2026, 1, 1, tzinfo=UTC)
TRIES = 3

PROCESS = """
import json, sys, time
began = time.process_time()
import tracker
imported_s = time.process_time() - began
project = tracker.open(sys.argv[1])
opened_s = time.process_time() - began
{before}
started = time.process_time()
rows = len({call})
spent_s = time.process_time() - started
memory_mb = int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]) / 1e3  # rusage has the parent's
print(json.dumps([imported_s, opened_s, spent_s, memory_mb, rows]))
"""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One line of the table."""

    what: str
    call: str
    before: str = ""
    """What the same process does first, so that the libraries are loaded."""
    goal: str


@dataclass(frozen=True, kw_only=True)
class Took:
    """The medians of some processes."""

    imported_s: float
    opened_s: float
    spent_s: float
    memory_mb: float
    rows: int


def main() -> None:
    """Make the projects up, measure and print."""
    arguments = _arguments()
    table = Table("what", *("rows", "CPU", "memory", "goal"))
    with tempfile.TemporaryDirectory(prefix="tracker-frames-") as name:
        wide, deep = Path(name) / "wide", Path(name) / "deep"
        _many_runs(wide, arguments.runs)
        _many_samples(deep, arguments.checkpoints)
        for row in measure(wide, deep):
            table.add_row(*row)
    Console(width=120).print(table)


def measure(wide: Path, deep: Path) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table."""
    opened = took(wide, Asked(what="", call="project.place", goal=""))
    yield "import tracker", "", f"{1e3 * opened.imported_s:.0f} ms", "", "20 ms"
    yield "import and tracker.open", "", f"{1e3 * opened.opened_s:.0f} ms", f"{opened.memory_mb:.0f} MB", "300 ms"
    one = "project['run-0007']"
    for folder, asked in (
        (wide, Asked(what="scores of one run, 2,000 rows", call=f"{one}.scores()", before=f"{one}.scores()", goal="")),
        (wide, Asked(what="scores of all runs", call="project.scores()", goal="8 s, 900 MB")),
        (deep, Asked(what="samples of one checkpoint", call=_samples("steps=[200]"), before=_READ, goal="100 ms")),
        (deep, Asked(what="samples of all, without texts", call=_samples(""), before=_READ, goal="2 s, 500 MB")),
        (deep, Asked(what="the same in batches", call="list(project.samples().reader())", before=_READ, goal="")),
        (deep, Asked(what="the same exported as CSV", call=_EXPORT, before=_EXPORT_IMPORTS, goal="300 MB")),
    ):
        found = took(folder, asked)
        yield asked.what, f"{found.rows:,}", f"{1e3 * found.spent_s:,.0f} ms", f"{found.memory_mb:.0f} MB", asked.goal


def took(folder: Path, asked: Asked) -> Took:
    """Return what it takes in new processes."""
    code = PROCESS.format(before=asked.before, call=asked.call)
    found = []
    for _ in range(TRIES):
        done = subprocess.run([sys.executable, "-c", code, folder], check=True, capture_output=True, text=True)
        found.append(json.loads(done.stdout))
    imported_s, opened_s, spent_s, memory_mb, rows = map(median, zip(*found, strict=True))
    return Took(imported_s=imported_s, opened_s=opened_s, spent_s=spent_s, memory_mb=memory_mb, rows=int(rows))


# --- private


def _samples(asked: str) -> str:
    return f"project.samples({asked}).to_pandas()"


_READ = _samples("steps=[100]")
_EXPORT_IMPORTS = "from tracker.api.formats.files import Format, write_batches; reader = project.samples().reader()"
_EXPORT = "range(write_batches(reader, reader.schema, Format.CSV, open('/dev/null', 'wb')))"


def _new_project(folder: Path) -> tuple[Engine, SqlHistory]:
    folder.mkdir()
    engine = open_database(f"sqlite:///{folder}/tracker.db")
    return engine, SqlHistory(engine, folder / "samples")


def _many_runs(folder: Path, runs: int) -> None:
    """Write the narrow rows of many runs."""
    engine, _ = _new_project(folder)
    rng, number = np.random.default_rng(0), 0
    known = {"subset": "", "measure": "score", "metric": "acc", "fingerprint": "f" * 64, "higher_is_better": True}
    names = [{"number": k, "key": str(k), "benchmark": f"bench-{k:02}", **known} for k in range(BENCHMARKS)]
    with transaction(engine) as connection:
        connection.execute(insert(SUBJECTS), names)
        for run in range(runs):
            evaluations, results = [], []
            for index in range(STEPS):
                number += 1
                evaluations.append(_evaluation(f"run-{run:04}", 100 * (index + 1), number))
                results += [_result(number, k, score) for k, score in enumerate(rng.random(BENCHMARKS).tolist())]
            connection.execute(insert(EVALUATIONS), evaluations)
            connection.execute(insert(MEASURED), results)
    engine.dispose()


def _evaluation(run: str, step: int, number: int) -> dict[str, object]:
    at = START + timedelta(minutes=number)
    place = {"uri": f"/pins/{run}/{step}", "source_uri": f"/out/{run}/checkpoint-{step}", "format": "full"}
    times = {"ready_at": at, "finished_at": at, "judged_at": at}
    own = {"number": number, "plan_id": f"{number:032x}", "run_id": run, "step": step, "suite": "skills"}
    return {**own, **place, **times, "digest": f"{number:064x}", "rules_version": 1}


def _result(evaluation: int, position: int, score: float) -> dict[str, object]:
    counts = {"planned": 1000, "scored": 995, "truncated": 5, "unscored": 0, "errors": 5}
    tokens = {"input_tokens": 100_000, "output_tokens": 20_000}
    measured = {"score": score, "stderr": 0.01, "coverage": 0.995, "duration_s": 3.5, "failure": ""}
    return {"evaluation": evaluation, "position": position, "subject": position, **measured, **counts, **tokens}


def _many_samples(folder: Path, checkpoints: int) -> None:
    """Write the samples of one run."""
    engine, history = _new_project(folder)
    size = Size(checkpoints=checkpoints)
    for index in range(checkpoints):
        history.append(record_at(size, "run-00", 100 * (index + 1), seed=index))
    engine.dispose()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.frames", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1_000, help="runs of 100 checkpoints")
    parser.add_argument("--checkpoints", type=int, default=100, help="checkpoints with samples")
    return parser.parse_args()


if __name__ == "__main__":
    main()
