"""`tracker compare A B`: two checkpoints, sample by sample."""

from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import Console

from eval_jobs.errors import ConfigError, TrackingUnreachable
from tracker.api.opening import open_project
from tracker.api.references import named_checkpoints
from tracker.app.steps.comparing import noise_of_run, whole_record_of
from tracker.cli.options import config_option, json_option, json_text
from tracker.cli.tables.comparison import comparison_table
from tracker.domain.compare.sample_pages import ChosenPages, SampleFilter, SamplePage, sample_pages
from tracker.domain.compare.view import ComparisonView, compare_records
from tracker.domain.records.display import names_text, one_line
from tracker.wiring.project import Project

UI_ADDRESS = "http://127.0.0.1:5000"
"""Of `tracker ui`, unless it is told another port."""


@click.command("compare")
@click.argument("a")
@click.argument("b")
@config_option
@json_option
@click.option("--mlflow", "to_mlflow", is_flag=True, help="Write samples to MLflow, side by side; print the links.")
@click.option("--examples", type=click.IntRange(min=0), default=3, show_default=True, help="Changed samples to show.")
def command(*, a: str, b: str, config_path: Path, as_json: bool, to_mlflow: bool, examples: int) -> None:
    """Compare checkpoint B with checkpoint A, sample by sample.

    A and B are STEP, RUN@STEP or latest, as listed by `tracker history`; best, best:BENCHMARK, or models:/NAME@ALIAS.
    Of a step that was saved again with other weights the newest counts; STEP:DIGEST names an older one.
    """
    project = open_project(config_path)
    if to_mlflow and not project.config.tracking.enabled:
        what = "nothing is written to MLflow: tracking.enabled is false"
        raise ConfigError(what, hint="leave out --mlflow, or set tracking.enabled = true")
    history = project.history
    before, after = (whole_record_of(known, history) for known in named_checkpoints(project, (a, b)))
    policy = project.config.to_policy()
    noise = noise_of_run(after.plan.checkpoint.run_id, history, policy)
    view = compare_records(before, after, policy, noise, examples=examples)
    if as_json:
        click.echo(json_text(ComparisonView, view))
    else:
        Console().print(comparison_table(view))
    if to_mlflow:
        pages = sample_pages(before, after, [one.benchmark for one in view.benchmarks])
        for line in _pages_in_mlflow(project, pages):
            click.echo(line, err=as_json)


# --- private


def _pages_in_mlflow(project: Project, chosen: ChosenPages) -> Iterator[str]:
    """Write the pages to MLflow, and yield what to tell a person.

    Raises:
        TrackingUnreachable, StoreError, ConfigError: as `Mlflow.write_samples`.
    """
    count = sum(len(page.before.rows) + len(page.after.rows) for page in chosen.pages)
    yield f"\nwriting what MLflow does not have yet of {count} samples ..."
    server, when = UI_ADDRESS, ", while `tracker ui` runs"
    if project.mlflow.uri.startswith("http"):
        server, when = project.mlflow.uri.rstrip("/"), ""
    yield f"samples side by side in MLflow{when}:"
    project.make_state_dir()
    try:
        for page, written in zip(chosen.pages, project.mlflow.write_samples(chosen.pages), strict=True):
            yield f"  {_words(page)}\n    {server}/{written.link}"
    except TrackingUnreachable as error:
        hint = "start MLflow or correct [tracking] of tracker.toml, then give the command again: it goes on from here"
        raise TrackingUnreachable(error.message, hint=hint) from error
    if chosen.without_answers:
        steps = names_text([f"step {step}" for step in chosen.without_answers])
        yield f"answers of {steps} are no longer kept ([keep] of tracker.toml): the pages show scores alone"
    if chosen.left_out:
        yield f"not written, because others changed more: {names_text(chosen.left_out)}"


def _words(page: SamplePage) -> str:
    shown, name = len(page.after.rows), one_line(page.benchmark)
    if page.choice is SampleFilter.CHANGED:
        which = "all that" if shown == page.chosen_from else f"{shown} of the {page.chosen_from} that"
        return f"{name}: {which} changed"
    if shown == page.chosen_from:
        return f"{name}: all {shown} questions"
    return f"{name}: {shown} of {page.chosen_from} questions, the same for every two checkpoints"
