"""`tracker compare A B`: two checkpoints, sample by sample."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from eval_jobs.errors import ConfigError
from tracker.api.opening import open_project
from tracker.api.references import named_checkpoints
from tracker.app.steps.comparing import noise_of_run, whole_record_of
from tracker.cli.options import config_option, json_option, json_text
from tracker.cli.samples_in_mlflow import pages_in_mlflow
from tracker.cli.tables.comparison import comparison_table
from tracker.domain.compare.sample_pages import sample_pages
from tracker.domain.compare.view import ComparisonView, compare_records


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
        for line in pages_in_mlflow(project, pages):
            click.echo(line, err=as_json)
