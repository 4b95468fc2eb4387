"""`tracker import PATH...`: take over results that others measured."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from eval_jobs.errors import BadData, StoreUnavailable
from eval_jobs.host.clock import SystemClock
from tracker.adapters.database.lock_sql import named_lock
from tracker.adapters.result_files import ImportRequest, read_results
from tracker.api.opening import open_project
from tracker.app.commands.importing import JudgedImport, import_results, publish_all
from tracker.cli.options import checked_run_name, config_option
from tracker.domain.imports.records import ImportedCheckpoint, ImportTarget, checkpoints_of, models_of
from tracker.domain.imports.types import LeftOut
from tracker.domain.records.display import count_text, names_text, one_line
from tracker.domain.records.imported import IMPORTED
from tracker.domain.records.types import VerdictWord
from tracker.wiring.project import Project

_SHOWN = (VerdictWord.MISSING, VerdictWord.FORGOTTEN, VerdictWord.REGRESSED, VerdictWord.SUSPECT)


@click.command("import")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--run", "run_id", help="Run to import the results into. Default: run.name.")
@click.option("--step", type=click.IntRange(0, 10**18 - 1), help="Step of all results. Default: from their names.")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    help="Metric to import if a task reports several, such as acc_norm or exact_match,flexible-extract; repeatable.",
)
@config_option
def command(
    *, paths: tuple[Path, ...], run_id: str | None, step: int | None, metrics: tuple[str, ...], config_path: Path
) -> None:
    """Import existing results. Each PATH is a file or a folder with results of any number of checkpoints.

    Supports lm-evaluation-harness (with or without --log_samples), EvalScope and `vllm bench serve`. Importing
    a result again has no effect.
    """
    project = _project_of(open_project(config_path), run_id)
    console = Console()
    with console.status("reading") as status:
        found = read_results(
            paths,
            ImportRequest(step=step, metrics=metrics),
            progress=lambda place: status.update(f"reading {one_line(place)}"),
        )
    target = ImportTarget(run_id=project.config.run.name, suite=project.config.suite.name)
    checkpoints = checkpoints_of(found.sheets, target)
    if not checkpoints:
        raise BadData(
            f"no known result format in {names_text([str(path) for path in paths])}",
            hint="supported: lm-evaluation-harness, EvalScope and vllm bench serve (see docs/how-to/import.md)",
        )
    with _progress(console, len(checkpoints)) as show:
        taken, unsent = _take(project, checkpoints, show)
    console.print(_table(target.run_id, taken))
    left_out = (*(left for one in checkpoints for left in one.left_out), *found.passed_over)
    for line in _left_out_lines(left_out):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for line in _model_lines(models_of(project.history.records(target.run_id)), target.run_id):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print(_summary(taken, target), markup=False, highlight=False)
    if unsent:
        console.print(f"{count_text(unsent, 'result')} pending for MLflow: run the same command again to send them")


# --- private


def _project_of(project: Project, run_id: str | None) -> Project:
    """Return the project with the run that is asked for; another one than its own has no trainer's folder."""
    run = project.config.run
    if run_id is None or run_id == run.name:
        return project
    place = project.config.run.state_dir / IMPORTED / run_id
    run = run.model_copy(update={"name": checked_run_name(run_id), "output_dir": str(place.absolute())})
    return Project(project.config.model_copy(update={"run": run}))


def _take(
    project: Project, checkpoints: Sequence[ImportedCheckpoint], show: Callable[[JudgedImport], None]
) -> tuple[tuple[JudgedImport, ...], int]:
    """Return what was taken over, and how much of it MLflow has not got yet.

    Raises:
        StoreUnavailable: somebody else imports into the run.
    """
    lock = named_lock(project.database, f"import {project.config.run.name}")
    if not lock.take():
        raise StoreUnavailable(
            f"another import into {project.config.run.name} is running",
            hint="retry when it has finished",
        )
    world = project.world()
    try:
        taken = import_results(world, checkpoints, clock=SystemClock(), show=show)
        return taken, publish_all(world.tracking)
    finally:
        world.source.close()
        world.tracking.close()
        lock.release()


@contextmanager
def _progress(console: Console, total: int) -> Iterator[Callable[[JudgedImport], None]]:
    columns = (TextColumn("computing the verdicts of step {task.fields[step]}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=total, step="")

        def show(taken: JudgedImport) -> None:
            progress.update(task, advance=1, step=str(taken.report.step))

        yield show


def _table(run_id: str, taken: Sequence[JudgedImport]) -> Table:
    table = Table(title=one_line(run_id), title_justify="left", title_style="bold", box=None, pad_edge=False)
    for name in ("step", "benchmarks", "samples", "loads", "found"):
        table.add_column(name, justify="left" if name == "found" else "right")
    for one in taken:
        record = one.checkpoint.record
        results = record.results
        samples = sum(len(result.samples) for result in results)
        table.add_row(
            str(one.report.step),
            _count_text(len(results)),
            _count_text(samples),
            _count_text(len(record.probes)),
            _found_text(one),
        )
    return table


def _count_text(count: int) -> str:
    if count:
        return f"{count:,}"
    return "-"


def _found_text(one: JudgedImport) -> str:
    words: dict[VerdictWord, list[str]] = defaultdict(list)
    for verdict in one.report.verdicts:
        words[verdict.word].append(one_line(verdict.benchmark))
    parts = [f"{word} {names_text(words[word])}" for word in _SHOWN if word in words]
    return "; ".join([*parts, *([] if one.is_new else ["already imported"])])


def _left_out_lines(left_out: Sequence[LeftOut]) -> Iterator[str]:
    """Yield one line for each reason for which something was left out, however many files it is in."""
    by_reason: dict[str, list[LeftOut]] = defaultdict(list)
    for left in left_out:
        by_reason[left.reason].append(left)
    for reason, members in by_reason.items():
        names = list(dict.fromkeys(left.name for left in members))
        files = sorted({left.source for left in members})
        where = one_line(Path(files[0]).name) if len(files) == 1 else count_text(len(files), "file")
        yield f"skipped {names_text(names)} in {where}: {one_line(reason)}"


def _model_lines(models: Mapping[str, frozenset[int]], run_id: str) -> Iterator[str]:
    """Yield the line that says that several models are in one run: nobody else would notice."""
    if models:
        named = [f"{one_line(name)} ({count_text(len(steps), 'step')})" for name, steps in models.items()]
        what = f"{one_line(run_id)} contains {len(models)} models: {names_text(named)}"
        yield f"{what}; use --run NAME to import unrelated models into separate runs"


def _summary(taken: Sequence[JudgedImport], target: ImportTarget) -> str:
    new = [one for one in taken if one.is_new]
    results = sum(len(one.checkpoint.record.outcomes) + len(one.checkpoint.record.probes) for one in new)
    known = len(taken) - len(new)
    text = f"imported {count_text(len(new), 'checkpoint')} with {count_text(results, 'result')} into {target.run_id}"
    if known:
        return f"{text}, {known} already imported"
    return text
