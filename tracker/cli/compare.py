"""`tracker compare A B`: two checkpoints, sample by sample."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from eval_jobs.errors import StoreError
from eval_jobs.types import EvalRecord
from tracker.cli.checkpoints import known_checkpoints
from tracker.cli.comparison_table import comparison_table
from tracker.cli.options import config_option, json_option, json_text, open_project
from tracker.domain.compare import ComparisonView, RunNoise, compare_records
from tracker.domain.trials import known_jitter, steps_for_jitter
from tracker.domain.types import Measure, Report
from tracker.ports import History


@click.command("compare")
@click.argument("a")
@click.argument("b")
@config_option
@json_option
@click.option("--examples", type=click.IntRange(min=0), default=3, show_default=True, help="Changed samples to show.")
def command(*, a: str, b: str, config_path: Path, as_json: bool, examples: int) -> None:
    """Compare checkpoint B with checkpoint A, sample by sample.

    A and B are STEP, RUN@STEP, latest or RUN@latest, as listed by `tracker history`. Of a step that was saved again
    with other weights the newest counts; STEP:DIGEST names an older one.
    """
    project = open_project(config_path)
    history = project.history
    before, after = (_record(history, known) for known in known_checkpoints(history, (a, b), project.config.run.name))
    policy = project.config.to_policy()
    run_id = after.plan.checkpoint.run_id
    scores = history.scores(run_id, (Measure.SCORE,), steps_for_jitter(history.records(run_id)))
    jitters = known_jitter(scores, policy.min_coverage)
    noise = RunNoise(jitters=jitters, calibrations=history.calibrations())
    view = compare_records(before, after, policy, noise, examples=examples)
    if as_json:
        click.echo(json_text(ComparisonView, view))
        return
    Console().print(comparison_table(view))


# --- private


def _record(history: History, report: Report) -> EvalRecord:
    record = history.record(report.plan_id)
    if record is None:  # a report without its record
        what = f"the results of step {report.step} of {report.run_id} are gone"
        raise StoreError(what, hint="restore the database from a backup")
    return record
