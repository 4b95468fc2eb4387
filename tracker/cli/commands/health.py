"""`tracker health`: does the watcher, or a worker, of this machine or container still go round its loop?

It imports next to nothing and asks no database, because whatever looks after containers calls it twice a minute.
"""

from pathlib import Path

import click

from eval_jobs.errors import NoSignOfLife
from eval_jobs.execute.life import Life, lives
from eval_jobs.host.clock import SystemClock
from tracker.domain.records.display import one_line

PATH = click.Path(path_type=Path)
WITHIN_S = 300.0
"""One round of a watcher may copy and hash a large checkpoint."""


@click.command("health")
@click.argument("kind", type=click.Choice(["watch", "worker"]))
@click.option("--config", "config_path", type=PATH, help="The project's configuration; default: tracker.toml.")
@click.option(
    "--work-dir", type=PATH, help="Folder of its logs, without the configuration: STATE_DIR/work of a watcher."
)
@click.option(
    "--within",
    "within_s",
    type=click.FloatRange(min=0, min_open=True),
    default=WITHIN_S,
    show_default=True,
    metavar="SECONDS",
    help="How old the last sign of life may be.",
)
def command(*, kind: str, config_path: Path | None, work_dir: Path | None, within_s: float) -> None:
    """Say whether the watcher, or a worker, goes round its loop. Exit code 0: it does; 4: it is gone, stopped or stuck.

    Only processes of this machine, or of this container, count. One that waits for a database, for MLflow or for a
    slow model goes on: what it does is said.
    """
    folder = work_dir if work_dir is not None else _work_dir(config_path)
    found = lives(folder, kind, SystemClock())
    if not found:
        raise NoSignOfLife(
            f"no `tracker {kind}` runs here with the work folder {folder}",
            hint=f"start it; where its folder is another one, name it: `tracker health {kind} --work-dir FOLDER`",
        )
    for life in found:
        if life.age_s > within_s:
            raise _stuck(kind, life)
    for life in found:
        click.echo(f"{kind} {life.pid}: {one_line(life.doing)} ({life.age_s:.0f} s ago)")


# --- private


def _stuck(kind: str, life: Life) -> NoSignOfLife:
    return NoSignOfLife(
        f"{kind} {life.pid} has shown no sign of life for {life.age_s:.0f} s; the last one: {one_line(life.doing)}",
        hint=f"it is stopped or stuck: end it with `kill -9 {life.pid}` and start it again, nothing is lost by that",
    )


def _work_dir(config_path: Path | None) -> Path:
    from tracker.config import DEFAULT_NAME, load_config  # here: it takes half a second

    return load_config(config_path or Path(DEFAULT_NAME)).run.work_dir
