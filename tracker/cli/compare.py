"""`tracker compare A B`: two checkpoints, sample by sample."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from tracker.app.comparing import noise_of_run, whole_record_of
from tracker.cli.checkpoints import named_checkpoints
from tracker.cli.comparison_table import comparison_table
from tracker.cli.options import config_option, json_option, json_text, open_project
from tracker.domain.compare import ComparisonView, compare_records


@click.command("compare")
@click.argument("a")
@click.argument("b")
@config_option
@json_option
@click.option("--examples", type=click.IntRange(min=0), default=3, show_default=True, help="Changed samples to show.")
def command(*, a: str, b: str, config_path: Path, as_json: bool, examples: int) -> None:
    """Compare checkpoint B with checkpoint A, sample by sample.

    A and B are STEP, RUN@STEP or latest, as listed by `tracker history`; best, best:BENCHMARK, or models:/NAME@ALIAS.
    Of a step that was saved again with other weights the newest counts; STEP:DIGEST names an older one.
    """
    project = open_project(config_path)
    history = project.history
    before, after = (whole_record_of(known, history) for known in named_checkpoints(project, (a, b)))
    policy = project.config.to_policy()
    noise = noise_of_run(after.plan.checkpoint.run_id, history, policy)
    view = compare_records(before, after, policy, noise, examples=examples)
    if as_json:
        click.echo(json_text(ComparisonView, view))
        return
    Console().print(comparison_table(view))
