"""`tracker compare A B`: two checkpoints sample by sample, or two runs step by step."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console

from eval_jobs.errors import ConfigError, Incomparable, TrackingUnreachable
from tracker.api.opening import open_project
from tracker.api.references import is_reference, known_runs, named_checkpoints
from tracker.app.steps.comparing import noise_of_run, parts_to_compare, run_to_compare, whole_record_of
from tracker.cli.json_output import json_option, print_json
from tracker.cli.options import COUNT, asked_as, config_option
from tracker.cli.tables.comparison import comparison_table
from tracker.cli.tables.runs import both_runs_table
from tracker.domain.compare.beside_run import with_run
from tracker.domain.compare.run_text import remarks
from tracker.domain.compare.runs import By, RunComparison, compare_runs
from tracker.domain.compare.sample_pages import ChosenPages, SampleFilter, SamplePage, sample_pages
from tracker.domain.compare.view import ComparisonView, compare_parts
from tracker.domain.records.display import names_text, one_line
from tracker.wiring.project import Project

UI_ADDRESS = "http://127.0.0.1:5000"
"""Address of `tracker ui` with its default port."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """Arguments and options of the command."""

    a: str
    b: str
    config_path: Path
    as_json: bool
    to_mlflow: bool
    examples: int
    by: str


@click.command("compare")
@click.argument("a")
@click.argument("b")
@config_option
@json_option(ComparisonView | RunComparison)
@click.option("--mlflow", "to_mlflow", is_flag=True, help="Write the samples to MLflow and print the links.")
@click.option("--examples", type=COUNT, default=3, show_default=True, help="Lost and gained samples per benchmark.")
@click.option(
    "--by", type=click.Choice([*map(str, By)]), default="step", show_default=True, help="What pairs two runs."
)
@asked_as(Request)
def command(asked: Request) -> None:
    """Compare checkpoint B with checkpoint A, sample by sample, or run B with run A, step by step.

    A and B are STEP, RUN@STEP, latest, best, best:BENCHMARK or models:/NAME@ALIAS, or both are names of runs. If a
    step was saved more than once, the newest weights are used; STEP:DIGEST selects older ones.
    """
    project = open_project(asked.config_path)
    if is_reference(asked.a) or is_reference(asked.b):
        _compare_checkpoints(project, asked)
    else:
        _compare_runs(project, asked)


def _compare_runs(project: Project, asked: Request) -> None:
    if asked.to_mlflow:
        raise ConfigError("--mlflow requires checkpoints, but these are runs", hint="remove --mlflow")
    min_coverage = project.config.to_policy().min_coverage
    names = known_runs(project.history, (asked.a, asked.b))
    a, b = (run_to_compare(run, project.history) for run in names)
    found = compare_runs(a, b, min_coverage=min_coverage, by=By(asked.by))
    if not found.benchmarks:
        hint = "evaluate both runs with the same suite and serving settings"
        raise Incomparable(f"no comparable benchmark: {'; '.join(remarks(found))}", hint=hint)
    if asked.as_json:
        print_json(found)
    else:
        Console().print(both_runs_table(found))
    if all(one.mean is None for one in found.benchmarks):
        what = f"nothing to compare: {names[0]} and {names[1]} share no checkpoint by {found.by}"
        raise Incomparable(what, hint=f"compare two checkpoints: `tracker compare {names[0]}@best {names[1]}@best`")


def _compare_checkpoints(project: Project, asked: Request) -> None:
    if asked.to_mlflow and not project.config.tracking.enabled:
        what = "--mlflow requires MLflow, and tracking.enabled is false"
        raise ConfigError(what, hint="remove --mlflow, or set tracking.enabled = true")
    history = project.history
    before, after = named_checkpoints(project, (asked.a, asked.b))
    policy = project.config.to_policy()
    noise = noise_of_run(after.run_id, history, policy)
    view = compare_parts(parts_to_compare((before, after), history), policy, noise, examples=asked.examples)
    view = with_run(view, history.report(after.plan_id) or after)
    if asked.as_json:
        print_json(view)
    else:
        Console().print(comparison_table(view))
    if asked.to_mlflow:
        left, right = whole_record_of(before, history), whole_record_of(after, history)
        pages = sample_pages(left, right, [one.benchmark for one in view.benchmarks])
        for line in _pages_in_mlflow(project, pages):
            click.echo(line, err=asked.as_json)


def _pages_in_mlflow(project: Project, chosen: ChosenPages) -> Iterator[str]:
    """Write the pages to MLflow, and yield the lines to print; raises as `Mlflow.write_samples`."""
    count = sum(len(page.before.rows) + len(page.after.rows) for page in chosen.pages)
    yield f"\nwriting up to {count} traces to MLflow ..."
    server, when = UI_ADDRESS, " (start `tracker ui` to open the links)"
    if project.mlflow.uri.startswith("http"):
        server, when = project.mlflow.uri.rstrip("/"), ""
    yield f"samples side by side in MLflow{when}:"
    project.make_state_dir()
    try:
        for page, link in zip(chosen.pages, project.mlflow.write_samples(chosen.pages), strict=True):
            yield f"  {_words(page)}\n    {server}/{link}"
    except TrackingUnreachable as error:
        hint = "start MLflow or fix [tracking] in tracker.toml, then run the command again to continue"
        raise TrackingUnreachable(error.message, hint=hint) from error
    if chosen.without_answers:
        steps = names_text([f"step {step}" for step in chosen.without_answers])
        yield f"the answers of {steps} were deleted ([keep] in tracker.toml): their pages show only scores"
    if chosen.left_out:
        yield f"not written, because other benchmarks lost more samples: {names_text(chosen.left_out)}"


def _words(page: SamplePage) -> str:
    shown, name = len(page.after.rows), one_line(page.after.benchmark)
    if page.after.choice is SampleFilter.CHANGED:
        which = "all samples that" if shown == page.chosen_from else f"{shown} of the {page.chosen_from} samples that"
        return f"{name}: {which} changed"
    if shown == page.chosen_from:
        return f"{name}: all {shown} samples"
    return f"{name}: {shown} of {page.chosen_from} samples, the same selection in every comparison"
