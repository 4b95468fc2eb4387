"""`tracker accept CHECKPOINT BENCHMARK`: this level is the new normal."""

import difflib
from pathlib import Path

import click

from eval_jobs.errors import ConfigError
from eval_jobs.host.clock import SystemClock
from tracker.api.opening import open_project
from tracker.api.references import named_checkpoint
from tracker.app.commands.accept import AcceptedLevel, accept
from tracker.cli.options import config_option, json_option, json_text
from tracker.domain.records.display import one_line
from tracker.domain.records.types import Acceptance
from tracker.ports import ReportStore


@click.command("accept")
@click.argument("checkpoint")
@click.argument("benchmark")
@click.option("--reason", required=True, help="Why; kept, and shown beside the verdicts.")
@config_option
@json_option
def command(*, checkpoint: str, benchmark: str, reason: str, config_path: Path, as_json: bool) -> None:
    """Accept the level of BENCHMARK at CHECKPOINT as the new normal: its loss ends, and nothing before it counts.

    CHECKPOINT is STEP, RUN@STEP or latest, as listed by `tracker history`; best, best:BENCHMARK, or models:/NAME@ALIAS.
    """
    project = open_project(config_path)
    history = project.history
    report = named_checkpoint(project, checkpoint)
    run_id, step = report.run_id, report.step
    if not reason.strip():
        raise ConfigError("the reason is empty", hint="say in a few words why this level is right")
    _check_benchmark(history, run_id, step, benchmark)
    level = AcceptedLevel(run_id=run_id, step=step, benchmark=benchmark, reason=reason)
    acceptance = accept(history, project.dispatcher, level, now=SystemClock().now())
    project.dispatcher.alerting.close()
    if as_json:
        click.echo(json_text(Acceptance, acceptance))
        return
    what = f"{one_line(benchmark)} of {one_line(run_id)} at step {step}"
    click.echo(f"accepted {what}: checkpoints before step {acceptance.from_step} no")
    click.echo("longer count for it; the next verdict begins a new history of its peak and its jitter")


# --- private


def _check_benchmark(history: ReportStore, run_id: str, step: int, benchmark: str) -> None:
    known = [v.benchmark for r in history.outlines(run_id) if r.step == step for v in r.verdicts]
    if benchmark not in known:
        close = difflib.get_close_matches(benchmark, known, n=1)
        meant = f"did you mean {close[0]}? " if close else ""
        raise ConfigError(
            f"step {step} has no benchmark {benchmark!r}", hint=f"{meant}evaluated there: {', '.join(known)}"
        )
