"""`tracker import PATH...`: import results measured by other tools."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from eval_jobs.errors import BadData, StoreUnavailable
from eval_jobs.host.clock import SystemClock
from tracker.adapters.database.lock_sql import named_lock
from tracker.adapters.result_files import SUPPORTED_HINT, ImportRequest, read_results
from tracker.api.opening import open_project
from tracker.app.commands.importing import JudgedImport, import_results, publish_all
from tracker.cli.json_output import json_option, print_json
from tracker.cli.options import asked_as, checked_run_name, config_option
from tracker.domain.imports.records import ImportedCheckpoint, checkpoints_of, demand_known_metrics, models_of
from tracker.domain.imports.types import LeftOut
from tracker.domain.records.display import count_text, names_text, one_line
from tracker.domain.records.imported import IMPORTED
from tracker.domain.records.types import WORSE, VerdictWord
from tracker.wiring.project import Project

_SHOWN = tuple(word for word in VerdictWord if word in {VerdictWord.MISSING, *WORSE, VerdictWord.SUSPECT})


@dataclass(frozen=True, kw_only=True)
class ImportedStep:
    """What was imported for one checkpoint."""

    step: int
    benchmarks: int
    samples: int
    loads: int
    is_new: bool
    """False: it was imported before."""
    findings: Mapping[VerdictWord, tuple[str, ...]]
    """Benchmarks by verdict: missing, forgotten, regressed or suspect."""


@dataclass(frozen=True, kw_only=True)
class ImportSummary:
    """The result of `tracker import`."""

    run_id: str
    steps: tuple[ImportedStep, ...]
    skipped: tuple[LeftOut, ...]
    pending_for_mlflow: int


@dataclass(frozen=True, kw_only=True)
class _Asked:
    paths: tuple[Path, ...]
    run_id: str | None
    step: int | None
    metrics: tuple[str, ...]
    config_path: Path
    as_json: bool


@click.command("import")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--run", "run_id", help="Run to import the results into. Default: run.name.")
@click.option("--step", type=click.IntRange(0, 10**18 - 1), help="Step of all results. Default: from path or model.")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    help="Metric to import if a task reports several, such as acc_norm or exact_match,flexible-extract; repeatable.",
)
@config_option
@json_option(ImportSummary)
@asked_as(_Asked)
def command(asked: _Asked) -> None:
    """Import existing results. Each PATH is a file or a folder with results of any number of checkpoints.

    Supports lm-evaluation-harness (with or without --log_samples), EvalScope and `vllm bench serve`. Importing
    a result again has no effect.
    """
    project = _project_of(open_project(asked.config_path), asked.run_id)
    console = Console(stderr=asked.as_json)
    with console.status("reading") as status:
        found = read_results(
            asked.paths,
            ImportRequest(step=asked.step, metrics=asked.metrics),
            progress=lambda place: status.update(f"reading {one_line(place)}"),
        )
    run_id = project.config.run.name
    checkpoints = checkpoints_of(found.sheets, run_id=run_id, suite=project.config.suite.name)
    if not checkpoints:
        names = names_text([str(path) for path in asked.paths])
        raise BadData(f"no supported result format in {names}", hint=SUPPORTED_HINT)
    demand_known_metrics(asked.metrics, found.sheets)
    with _progress(console, len(checkpoints)) as show:
        taken, unsent = _take(project, checkpoints, show)
    skipped = (*(left for one in checkpoints for left in one.left_out), *found.passed_over)
    steps = tuple(map(_step, taken))
    if asked.as_json:
        print_json(ImportSummary(run_id=run_id, steps=steps, skipped=skipped, pending_for_mlflow=unsent))
        return
    console.print(_table(run_id, steps))
    models = models_of(project.history.records(run_id))
    for line in (*_skipped_lines(skipped), *_model_lines(models, run_id), _summary(taken, run_id)):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if unsent:
        console.print(f"{count_text(unsent, 'result')} pending for MLflow: run the same command again to send them")


def _project_of(project: Project, run_id: str | None) -> Project:
    """Return the project with the requested run; a run other than its own has no output folder of a trainer."""
    run = project.config.run
    if run_id is None or run_id == run.name:
        return project
    place = project.config.run.state_dir / IMPORTED / run_id
    run = run.model_copy(update={"name": checked_run_name(run_id), "output_dir": str(place.absolute())})
    return Project(project.config.model_copy(update={"run": run}))


def _take(
    project: Project, checkpoints: Sequence[ImportedCheckpoint], show: Callable[[JudgedImport], None]
) -> tuple[tuple[JudgedImport, ...], int]:
    """Import checkpoints; return them and the number of results pending for MLflow."""
    lock = named_lock(project.database, f"import {project.config.run.name}")
    if not lock.take():
        raise StoreUnavailable(
            f"another import into {project.config.run.name} is running", hint="retry when it has finished"
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


def _step(one: JudgedImport) -> ImportedStep:
    findings: dict[VerdictWord, list[str]] = defaultdict(list)
    for verdict in one.report.verdicts:
        if verdict.word in _SHOWN:
            findings[verdict.word].append(verdict.benchmark)
    record = one.checkpoint.record
    return ImportedStep(
        step=one.report.step,
        benchmarks=len(record.results),
        samples=sum(len(result.samples) for result in record.results),
        loads=len(record.probes),
        is_new=one.is_new,
        findings={word: tuple(names) for word, names in findings.items()},
    )


def _table(run_id: str, steps: Sequence[ImportedStep]) -> Table:
    table = Table(title=one_line(run_id), title_justify="left", title_style="bold", box=None, pad_edge=False)
    for name in ("step", "benchmarks", "samples", "loads", "verdicts"):
        table.add_column(name, justify="left" if name == "verdicts" else "right")
    for one in steps:
        counts = [f"{count:,}" if count else "-" for count in (one.benchmarks, one.samples, one.loads)]
        table.add_row(str(one.step), *counts, _found_text(one))
    return table


def _found_text(one: ImportedStep) -> str:
    shown = sorted(one.findings, key=_SHOWN.index)
    parts = [f"{word} {names_text(one.findings[word])}" for word in shown]
    if not one.is_new:
        parts.append("already imported")
    return "; ".join(parts)


def _skipped_lines(skipped: Sequence[LeftOut]) -> Iterator[str]:
    """Yield one line for each reason that something was skipped, for all files together."""
    by_reason: dict[str, list[LeftOut]] = defaultdict(list)
    for left in skipped:
        by_reason[left.reason].append(left)
    for reason, members in by_reason.items():
        names = list(dict.fromkeys(left.name for left in members))
        files = sorted({left.source for left in members})
        where = one_line(Path(files[0]).name) if len(files) == 1 else count_text(len(files), "file")
        yield f"skipped {names_text(names)} in {where}: {one_line(reason)}"


def _model_lines(models: Mapping[str, frozenset[int]], run_id: str) -> Iterator[str]:
    """Yield a line if the run contains several models, which is easy to miss."""
    if models:
        named = [f"{one_line(name)} ({count_text(len(steps), 'step')})" for name, steps in models.items()]
        what = f"{one_line(run_id)} contains {len(models)} models: {names_text(named)}"
        yield f"{what}; use --run NAME to import unrelated models into separate runs"


def _summary(taken: Sequence[JudgedImport], run_id: str) -> str:
    new = [one for one in taken if one.is_new]
    results = sum(len(one.checkpoint.record.outcomes) + len(one.checkpoint.record.probes) for one in new)
    known = len(taken) - len(new)
    text = f"imported {count_text(len(new), 'checkpoint')} with {count_text(results, 'result')} into {run_id}"
    if known:
        return f"{text}, {known} already imported"
    return text
