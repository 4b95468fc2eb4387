"""`tracker compare A B`: two checkpoints, sample by sample."""

from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import Console

from eval_jobs.errors import ConfigError, TrackingUnreachable
from tracker.api.opening import open_project
from tracker.api.references import named_checkpoints
from tracker.app.steps.comparing import noise_of_run, whole_record_of
from tracker.cli.json_output import json_option, print_json
from tracker.cli.options import COUNT, config_option
from tracker.cli.tables.comparison import comparison_table
from tracker.domain.compare.sample_pages import ChosenPages, SampleFilter, SamplePage, sample_pages
from tracker.domain.compare.view import ComparisonView, compare_records
from tracker.domain.records.display import names_text, one_line
from tracker.wiring.project import Project

UI_ADDRESS = "http://127.0.0.1:5000"
"""Address of `tracker ui` with its default port."""


@click.command("compare")
@click.argument("a")
@click.argument("b")
@config_option
@json_option(ComparisonView)
@click.option("--mlflow", "to_mlflow", is_flag=True, help="Write the samples to MLflow and print the links.")
@click.option("--examples", type=COUNT, default=3, show_default=True, help="Lost and gained samples per benchmark.")
def command(*, a: str, b: str, config_path: Path, as_json: bool, to_mlflow: bool, examples: int) -> None:
    """Compare checkpoint B with checkpoint A, sample by sample.

    A and B are STEP, RUN@STEP, latest, best, best:BENCHMARK or models:/NAME@ALIAS. If a step was saved more than
    once, the newest weights are used; STEP:DIGEST selects older ones.
    """
    project = open_project(config_path)
    if to_mlflow and not project.config.tracking.enabled:
        what = "--mlflow requires MLflow, and tracking.enabled is false"
        raise ConfigError(what, hint="remove --mlflow, or set tracking.enabled = true")
    history = project.history
    before, after = (whole_record_of(known, history) for known in named_checkpoints(project, (a, b)))
    policy = project.config.to_policy()
    noise = noise_of_run(after.plan.checkpoint.run_id, history, policy)
    view = compare_records(before, after, policy, noise, examples=examples)
    if as_json:
        print_json(view)
    else:
        Console().print(comparison_table(view))
    if to_mlflow:
        pages = sample_pages(before, after, [one.benchmark for one in view.benchmarks])
        for line in _pages_in_mlflow(project, pages):
            click.echo(line, err=as_json)


# --- private


def _pages_in_mlflow(project: Project, chosen: ChosenPages) -> Iterator[str]:
    """Write the pages to MLflow, and yield the lines to print.

    Raises:
        TrackingUnreachable, StoreError, ConfigError: as `Mlflow.write_samples`.
    """
    count = sum(len(page.before.rows) + len(page.after.rows) for page in chosen.pages)
    yield f"\nwriting up to {count} traces to MLflow ..."
    server, when = UI_ADDRESS, " (start `tracker ui` to open the links)"
    if project.mlflow.uri.startswith("http"):
        server, when = project.mlflow.uri.rstrip("/"), ""
    yield f"samples side by side in MLflow{when}:"
    project.make_state_dir()
    try:
        for page, written in zip(chosen.pages, project.mlflow.write_samples(chosen.pages), strict=True):
            yield f"  {_words(page)}\n    {server}/{written.link}"
    except TrackingUnreachable as error:
        hint = "start MLflow or fix [tracking] in tracker.toml, then run the command again to continue"
        raise TrackingUnreachable(error.message, hint=hint) from error
    if chosen.without_answers:
        steps = names_text([f"step {step}" for step in chosen.without_answers])
        yield f"the answers of {steps} were deleted ([keep] in tracker.toml): their pages show only scores"
    if chosen.left_out:
        yield f"not written, because other benchmarks lost more samples: {names_text(chosen.left_out)}"


def _words(page: SamplePage) -> str:
    shown, name = len(page.after.rows), one_line(page.benchmark)
    if page.choice is SampleFilter.CHANGED:
        which = "all samples that" if shown == page.chosen_from else f"{shown} of the {page.chosen_from} samples that"
        return f"{name}: {which} changed"
    if shown == page.chosen_from:
        return f"{name}: all {shown} samples"
    return f"{name}: {shown} of {page.chosen_from} samples, the same selection in every comparison"
