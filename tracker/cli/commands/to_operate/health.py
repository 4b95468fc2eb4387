"""`tracker health`: check that the watcher, or a worker, of this machine or container is alive.

It has few imports and does not query a database, because container health checks run it twice a minute.
"""

from pathlib import Path

import click

from eval_jobs.errors import NoSignOfLife
from eval_jobs.execute.life import Life, lives
from eval_jobs.host.clock import SystemClock
from tracker.cli.json_output import json_option, print_json
from tracker.domain.records.display import one_line

PATH = click.Path(path_type=Path)
WITHIN_S = 300.0
"""One pass of a watcher may copy and hash a large checkpoint."""
_STARTS = {"watch": "`tracker watch`", "worker": "`tracker worker`", "agent": "`tracker watch`, which starts it"}


@click.command("health")
@click.argument("kind", type=click.Choice(["watch", "worker", "agent"]))
@click.option("--config", "config_path", type=PATH, help="Project configuration. Default: tracker.toml.")
@click.option("--work-dir", type=PATH, help="Work folder, instead of --config (STATE_DIR/work for a watcher).")
@click.option(
    "--within",
    "within_s",
    type=click.FloatRange(min=0, min_open=True),
    default=WITHIN_S,
    show_default=True,
    metavar="SECONDS",
    help="Maximum age of the last heartbeat.",
)
@json_option(tuple[Life, ...])
def command(*, kind: str, config_path: Path | None, work_dir: Path | None, within_s: float, as_json: bool) -> None:
    """Check that the watcher, a worker or the agent is alive. Exit code 0: alive; 4: gone, stopped or stuck.

    Checks processes of this machine or container only; watcher and agent of this run only, except with --work-dir.
    A process that waits for a database, MLflow or a slow model is alive; its activity is printed.
    """
    found = _found(kind, config_path, work_dir)
    for life in found:
        if life.age_s > within_s:
            what = f"no heartbeat from {kind} {life.pid} for {life.age_s:.0f} s"
            raise NoSignOfLife(
                f"{what}; last activity: {one_line(life.activity)}",
                hint=f"the process is stopped or stuck: run `kill -9 {life.pid}` and start it again; no data is lost",
            )
    if as_json:
        print_json(found)
        return
    for life in found:
        click.echo(f"{kind} {life.pid}: {one_line(life.activity)} ({life.age_s:.0f} s ago)")


def _found(kind: str, config_path: Path | None, work_dir: Path | None) -> tuple[Life, ...]:
    """Return what is running, of the run of the settings; with `work_dir` and for workers, of every run."""
    run = None
    if work_dir is None:
        from tracker.config import DEFAULT_NAME, load_config  # here: slow to import (half a second)

        settings = load_config(config_path or Path(DEFAULT_NAME)).run
        work_dir, run = settings.work_dir, settings.name
    if found := tuple(life for life in lives(work_dir, kind, SystemClock()) if run is None or life.run in ("", run)):
        return found
    of_run = "" if run is None or kind == "worker" else f" for run {run}"
    raise NoSignOfLife(
        f"no `tracker {kind}` is running{of_run} with the work folder {work_dir}",
        hint=f"start {_STARTS[kind]}, or pass its work folder: `tracker health {kind} --work-dir FOLDER`",
    )
