"""`tracker compare A B`: two checkpoints, sample by sample."""

from __future__ import annotations

from pathlib import Path

import click
from pydantic import TypeAdapter
from rich.console import Console

from eval_jobs.errors import ConfigError
from eval_jobs.types import EvalRecord
from tracker.cli.history import known_run
from tracker.cli.options import config_option, json_option, open_project
from tracker.domain.compare import ComparisonView, compare_records
from tracker.domain.trials import known_jitter
from tracker.ports import History
from tracker.render import comparison_table


@click.command("compare")
@click.argument("a")
@click.argument("b")
@config_option
@json_option
@click.option("--examples", type=click.IntRange(min=0), default=3, show_default=True, help="Changed samples to show.")
def command(*, a: str, b: str, config_path: Path, as_json: bool, examples: int) -> None:
    """Compare checkpoint B with checkpoint A, sample by sample.

    A and B are STEP, RUN@STEP, latest or RUN@latest, as listed by `tracker history`.
    """
    project = open_project(config_path)
    before, after = (_find(project.history, name, project.config.run.name) for name in (a, b))
    policy = project.config.to_policy()
    jitters = known_jitter(project.history.scores(after.plan.checkpoint.run_id), policy.min_coverage)
    view = compare_records(before, after, policy, jitters, examples=examples)
    if as_json:
        click.echo(TypeAdapter(ComparisonView).dump_json(view, indent=2))
        return
    Console().print(comparison_table(view))


# --- private


def _find(history: History, name: str, default_run: str) -> EvalRecord:
    run, _, step = name.rpartition("@")
    run = known_run(history, run or default_run)
    steps = [report.step for report in history.reports(run)]
    if step != "latest" and not step.isdecimal():
        raise ConfigError(f"{name!r} names no checkpoint", hint="write STEP, RUN@STEP or latest")
    wanted = steps[-1:] if step == "latest" else [int(step)]
    record = history.find_record(run, wanted[0]) if wanted and wanted[0] in steps else None
    if record is None:
        known = ", ".join(map(str, steps)) or "none yet"
        raise ConfigError(f"run {run} has no evaluated step {step}", hint=f"evaluated steps: {known}")
    return record
