"""`tracker watch`: evaluate every checkpoint of a run as it appears."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import click
import psutil
from rich.console import Console
from rich.logging import RichHandler

from eval_jobs.errors import ConfigError
from eval_jobs.execute.clock import SystemClock
from eval_jobs.execute.local import LocalWorkers
from tracker.app.daemon import StopRule, watch
from tracker.cli import interrupts
from tracker.cli.options import config_option, open_project
from tracker.cli.watch_display import WatchDisplay
from tracker.config import Config


@click.command("watch")
@config_option
@click.option(
    "--until-exit-of", "pid", type=click.IntRange(min=1), help="Stop after process PID has ended and all is judged."
)
@click.option("--until-idle", is_flag=True, help="Stop when everything that is there now is judged.")
@click.option("--workers", type=click.IntRange(min=0), default=1, show_default=True, help="Evaluating processes.")
@click.option("--polling", is_flag=True, help="Look at the disk instead of waiting for file events.")
def command(*, config_path: Path, pid: int | None, until_idle: bool, workers: int, polling: bool) -> None:
    """Evaluate every checkpoint of a run as it appears.

    Finds each finished checkpoint, pins it before the trainer deletes it, serves and scores it, writes MLflow and
    says what changed. Runs beside the trainer until Ctrl-C; the next start continues where this one stopped.
    """
    project = open_project(config_path)
    if polling:
        project = project.polling()
    training_ended = _training_ended(pid, until_idle=until_idle)
    world = project.world()
    local = project.workers(workers)
    console = Console()
    if console.is_terminal:  # log lines go above the live line, not into it
        handler = RichHandler(console=console, show_time=False, show_path=False)
        logging.basicConfig(handlers=[handler], format="%(message)s", force=True)
    display = WatchDisplay(console)
    display.welcome(project.config, world.measurement)
    try:
        with display:
            watch(
                world,
                clock=SystemClock(),
                keep_workers=lambda: _keep(local),
                stop=StopRule(training_ended=training_ended, quiet_s=_quiet_s(project.config)),
                show=display.show,
            )
        display.farewell(world.history)
    finally:
        local.stop()
        world.source.close()
        world.tracking.close()


# --- private


def _training_ended(pid: int | None, *, until_idle: bool) -> Callable[[], bool]:
    if until_idle:
        return lambda: True
    if pid is None:
        return lambda: False
    try:
        trainer = psutil.Process(pid)
    except psutil.NoSuchProcess as error:
        raise ConfigError(
            f"--until-exit-of {pid}: there is no such process",
            hint="use --until-idle to evaluate what is there already",
        ) from error
    return lambda: _is_gone(trainer)


def _keep(workers: LocalWorkers) -> None:
    """Check once a pass; the first pass comes before the first workers, so that plans have today's settings."""
    interrupts.check()
    workers.check()


def _is_gone(trainer: psutil.Process) -> bool:
    """Say whether the process has ended; psutil compares the start time, so that a reused pid is another process."""
    try:
        return not trainer.is_running() or trainer.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # between the two questions
        return True


def _quiet_s(config: Config) -> float:
    """Return how long the last checkpoint may need to settle and be seen by the slower of the two ways."""
    return 2 * config.watch.settle_s + (config.watch.rescan_s if config.watch.polling else 2.0)
