"""What a large project costs: 100,000 plans, 2,000 checkpoints x 20 benchmarks x 1,000 samples, 10,000 watched files.

    python -m benchmarks.scale                 # one run of 2,000 checkpoints
    python -m benchmarks.scale --runs          # 20 runs of 100 instead
    python -m benchmarks.scale --quick         # the same on a small scale: does it run?

Prints one table: what was measured, what was promised, and what came out on this machine. The project is made up in a
temporary folder, a few gigabytes of it.
"""

from __future__ import annotations

import gc
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from sqlalchemy import Engine

from benchmarks.scale_data import (
    START,
    STEPS,
    Size,
    fill_history,
    fill_queue,
    plan_at,
    record_at,
    run_name,
    write_project,
    write_training_output,
)
from benchmarks.scale_importing import BENCHMARKS, import_times
from benchmarks.scale_watching import FILES, idle_share
from eval_jobs.queue.database_sql import open_database
from eval_jobs.queue.sql_queue import SqlQueue
from eval_jobs.types import EvalPlan, EvalRecord
from tracker.adapters.history.store_sql import SqlHistory
from tracker.domain.records.policy import Policy
from tracker.domain.verdicts.context import RunContext
from tracker.domain.verdicts.judge import judge

QUICK = Size(plans=50, checkpoints=6, benchmarks=3, samples=40)
TRACKER = "import sys; from tracker.cli.main import main; sys.argv[0] = 'tracker'; main()"
BLOCK_BYTES = 512
"""Unit of `st_blocks`."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of the table."""

    what: str
    found: str
    promised: str = ""
    cpu: str = ""
    """The processor's part of it, which other work on the machine changes less."""


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What one try took."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True, kw_only=True)
class Project:
    """A made-up project that is open."""

    folder: Path
    size: Size
    engine: Engine
    config: Path

    @property
    def samples_dir(self) -> Path:
        """Folder of the samples."""
        return self.folder / "state" / "samples"


@click.command()
@click.option("--runs", is_flag=True, help="20 runs of 100 checkpoints instead of one of 2,000.")
@click.option("--quick", is_flag=True, help="A small project.")
def main(*, runs: bool, quick: bool) -> None:
    """Make a project up, measure and print."""
    size = QUICK if quick else Size()
    if runs:
        size = replace(size, runs=2 if quick else 20, checkpoints=3 if quick else 100)
    with tempfile.TemporaryDirectory(prefix="tracker-scale-") as name:
        lines = list(measure(Path(name), size, folders=5 if quick else 1_000, seconds=1.0 if quick else 30.0))
    table = Table(
        title=f"{size.plans:,} plans, {size.runs} x {size.checkpoints:,} checkpoints x {size.benchmarks} benchmarks x "
        f"{size.samples:,} samples"
    )
    for heading in ("what", "promised", "measured", "of it CPU"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for line in lines:
        table.add_row(line.what, line.promised, line.found, line.cpu)
    Console(width=120).print(table)


def measure(folder: Path, size: Size, *, folders: int, seconds: float) -> Iterator[Line]:
    """Yield everything that is measured, in the order in which it is."""
    begun = time.perf_counter()
    project = made_up(folder, size)
    yield Line(what="making it up", found=f"{time.perf_counter() - begun:.0f} s")
    yield from sizes(project)
    yield from commands(project)
    yield from queue_times(project)
    yield from adding(project)
    yield from judging(project)
    project.engine.dispose()
    yield from importing(folder / "imported", size.checkpoints)
    write_training_output(folder / "watched" / "out", checkpoints=folders)
    for polling in (False, True):
        gc.collect()
        share = idle_share(folder / "watched", polling=polling, seconds=seconds)
        how = "polling" if polling else "with file events"
        yield Line(what=f"idle watch of {folders * FILES:,} files, {how}", promised="2 %", found=f"{share:.2%}")


def made_up(folder: Path, size: Size) -> Project:
    """Make a project up."""
    config = write_project(folder)
    engine = open_database(f"sqlite:///{folder}/state/tracker.db")
    fill_queue(engine, size)
    fill_history(engine, folder / "state" / "samples", size)
    return Project(folder=folder, size=size, engine=engine, config=config)


def sizes(project: Project) -> Iterator[Line]:
    """Yield what the samples take on disk."""
    stored = project.size.samples_stored
    scores = list(project.samples_dir.glob("*/scores-*"))
    folders = [path.parent for path in scores]
    in_files = sum(path.stat().st_size for path in scores)
    on_disk = sum(path.stat().st_blocks for path in [*scores, *folders]) * BLOCK_BYTES
    answers = sum(path.stat().st_size for path in project.samples_dir.glob("*/answers-*"))
    asked = sum(path.stat().st_size for path in (project.samples_dir / "questions").iterdir())
    promised = "3 bytes"
    yield Line(what="a sample: its score, in files", promised=promised, found=f"{in_files / stored:.2f} bytes")
    yield Line(what="a sample: with blocks and folders", promised=promised, found=f"{on_disk / stored:.2f} bytes")
    yield Line(what="its answer of 8 words", found=f"{answers / stored:.2f} bytes")
    yield Line(what="all questions, once", found=f"{asked / 1e6:.2f} MB")
    database = (project.folder / "state" / "tracker.db").stat().st_size
    yield Line(what="the database", found=f"{database / 1e6:,.0f} MB")


def commands(project: Project) -> Iterator[Line]:
    """Yield what the commands take, as processes from start to end."""
    name = run_name(0)
    for what, arguments, promised, times in (
        ("tracker --help", ["--help"], "", 3),
        ("tracker history RUN", ["history", name], "1 s", 5),
        ("tracker history, every run", ["history"], "", 3),
        ("tracker history RUN --last 0", ["history", name, "--last", "0"], "", 1),
        ("tracker forgetting RUN", ["forgetting", name], "3 s", 1),
        ("tracker compare", ["compare", f"{name}@{STEPS}", f"{name}@latest"], "3 s", 1),
        ("tracker report RUN", ["report", name], "", 1),
    ):
        options = [] if "--help" in arguments else ["--config", str(project.config)]
        spent = [_process([*arguments, *options], project.folder / "bytecode") for _ in range(times)]
        rest = f", then {statistics.median(s.wall_s for s in spent[1:]):.2f} s" if times > 1 else ""
        cpu = f"{statistics.median(s.cpu_s for s in spent):.2f} s"
        yield Line(what=what, promised=promised, found=f"{spent[0].wall_s:.2f} s{rest}", cpu=cpu)


def queue_times(project: Project) -> Iterator[Line]:
    """Yield what a pass of the watch asks of the queue."""
    queue = SqlQueue(project.engine)
    for what, call in (("queue: its state", queue.state), ("queue: what is finished", queue.finished)):
        yield _line(what, [_spent(call) for _ in range(5)])


def adding(project: Project) -> Iterator[Line]:
    """Yield what one more checkpoint costs: its plan into the queue, its record into the history."""
    queue, history = SqlQueue(project.engine), SqlHistory(project.engine, project.samples_dir)
    size, name = project.size, run_name(0)
    spent: list[Spent] = []
    for index in range(12):
        step = STEPS * (size.checkpoints + 1 + index)
        plan, record = plan_at(size, name, step), record_at(size, name, step, seed=100 + index)
        gc.collect()
        spent.append(_spent(partial(_add, queue, history, plan, record)))
    yield _line("adding a checkpoint, first of a process", spent[:1])
    yield _line("adding a checkpoint, then", spent[1:], promised="50 ms")


def judging(project: Project) -> Iterator[Line]:
    """Yield what it takes to read the run's scores and to judge one more checkpoint."""
    history, name, size = SqlHistory(project.engine, project.samples_dir), run_name(0), project.size
    yield _line("reading all scores of a run", [_spent(lambda: history.scores(name))])
    added, judged = [], []
    for index in range(4):
        step = STEPS * (size.checkpoints + 100 + index)
        record = record_at(size, name, step, seed=200 + index)
        history.append(record)
        added.append(_spent(lambda: history.scores(name)))
        scores, run_context = history.scores(name), RunContext(records=history.records(name))
        judged.append(_spent(partial(judge, record, scores, run_context, Policy(), now=START)))
    yield _line("one more checkpoint: its scores", added)
    yield _line("one more checkpoint: its verdicts", judged)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    yield Line(what="most memory that all this took", found=f"{peak:,.0f} MB")


def importing(folder: Path, checkpoints: int) -> Iterator[Line]:
    """Yield what a checkpoint takes whose means others measured, at the beginning and at the end of a long run."""
    times = import_times(folder, checkpoints=checkpoints)
    for what, spent_s in (("reading its file", times.reading_s), ("a first one", times.first_s)):
        yield _import_line(what, spent_s)
    yield _import_line(f"one of the last of {checkpoints:,}", times.last_s, promised="15 ms")


# --- private


def _import_line(what: str, spent_s: float, promised: str = "") -> Line:
    said = f"importing {BENCHMARKS} means: {what}"
    return Line(what=said, promised=promised, found="", cpu=f"{1e3 * spent_s:.1f} ms")


def _add(queue: SqlQueue, history: SqlHistory, plan: EvalPlan, record: EvalRecord) -> None:
    queue.add(plan, now=START)
    history.append(record)


def _process(arguments: Sequence[str], cache: Path) -> Spent:
    # As an installed program: compiled once, whatever the environment of this process says.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(cache)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    command = [sys.executable, "-c", TRACKER, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    wall_s = time.perf_counter() - begun
    if done.returncode:
        raise click.ClickException(f"tracker {' '.join(arguments)} failed: {done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Spent(wall_s=wall_s, cpu_s=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def _spent(call: Callable[[], object]) -> Spent:
    begun, used = time.perf_counter(), time.process_time()
    call()
    return Spent(wall_s=time.perf_counter() - begun, cpu_s=time.process_time() - used)


def _line(what: str, spent: Sequence[Spent], promised: str = "") -> Line:
    walls = [1e3 * s.wall_s for s in spent]
    longest = f", at most {max(walls):,.0f} ms" if len(walls) > 1 else ""
    cpu = f"{1e3 * statistics.median(s.cpu_s for s in spent):,.0f} ms"
    return Line(what=what, promised=promised, found=f"{statistics.median(walls):,.0f} ms{longest}", cpu=cpu)


if __name__ == "__main__":
    main()
