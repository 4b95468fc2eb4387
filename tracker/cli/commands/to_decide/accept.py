"""`tracker accept CHECKPOINT BENCHMARK`: accept a score as the new baseline."""

import difflib
from pathlib import Path

import click

from eval_jobs.errors import ConfigError
from eval_jobs.host.clock import SystemClock
from tracker.api.opening import open_project
from tracker.api.references import named_checkpoint
from tracker.app.commands.accept import accept
from tracker.app.world import MeasurementPlan
from tracker.cli.json_output import json_option, print_json
from tracker.cli.options import config_option
from tracker.domain.records.display import one_line
from tracker.domain.records.types import Acceptance
from tracker.ports import ReportStore


@click.command("accept")
@click.argument("checkpoint")
@click.argument("benchmark")
@click.option("--reason", required=True, help="Reason, stored and shown beside the verdicts.")
@config_option
@json_option(Acceptance)
def command(*, checkpoint: str, benchmark: str, reason: str, config_path: Path, as_json: bool) -> None:
    """Accept the score of BENCHMARK at CHECKPOINT as its new baseline.

    This ends an open loss of BENCHMARK; later verdicts ignore earlier checkpoints.

    CHECKPOINT is STEP, RUN@STEP, latest, best, best:BENCHMARK or models:/NAME@ALIAS.
    """
    project = open_project(config_path)
    history = project.history
    report = named_checkpoint(project, checkpoint)
    run_id, step = report.run_id, report.step
    if not reason.strip():
        raise ConfigError("the reason is empty", hint="explain in a few words why this level is acceptable")
    _check_benchmark(history, run_id, step, benchmark)
    now = SystemClock().now()
    acceptance = Acceptance(
        run_id=run_id, step=step, from_step=step, benchmark=benchmark, reason=reason, accepted_at=now
    )
    config = project.config
    # Nothing is evaluated, so no data file is read.
    screening = config.suite.screen.to_screening()
    world = project.world(MeasurementPlan(suites=(), serve=config.serve.to_spec(), loads=(), screening=screening))
    try:
        accept(world, acceptance)
        world.tracking.flush()
    finally:
        world.close()
    if as_json:
        print_json(acceptance)
        return
    what = f"{one_line(benchmark)} in {one_line(run_id)} at step {step}"
    click.echo(f"accepted the score of {what}; its verdicts now ignore checkpoints before step {acceptance.from_step}")


def _check_benchmark(history: ReportStore, run_id: str, step: int, benchmark: str) -> None:
    known = [v.benchmark for r in history.outlines(run_id) if r.step == step for v in r.verdicts]
    if benchmark not in known:
        close = difflib.get_close_matches(benchmark, known, n=1)
        meant = f"did you mean {close[0]}? " if close else ""
        raise ConfigError(
            f"no benchmark {benchmark!r} at step {step}", hint=f"{meant}benchmarks at this step: {', '.join(known)}"
        )
