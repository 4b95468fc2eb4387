"""`tracker guard -- COMMAND...`: run a training so that its output, its end and its orphans are known."""

import os
from contextlib import suppress
from pathlib import Path

import click

from eval_jobs.host.clock import SystemClock
from tracker.adapters.guarded_command import Guard, run_guarded
from tracker.cli.options import config_option
from tracker.config import load_config
from tracker.domain.health.guarded import ending_text

RUN_VARIABLE = "TRACKER_RUN"


@click.command("guard", context_settings={"allow_interspersed_args": False})
@config_option
@click.option(
    "--grace-s",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="Seconds between SIGTERM and SIGKILL.",
)
@click.argument("words", nargs=-1, required=True, metavar="-- COMMAND...", type=click.UNPROCESSED)
def command(*, config_path: Path, grace_s: float, words: tuple[str, ...]) -> int:
    """Run a training, and record its output and how it ended.

    `tracker watch` follows the output. Signals are passed on; a second Ctrl-C, like SIGTERM, kills the command
    after --grace-s. What it leaves behind is ended, or waited for if it succeeded.

    The exit code is that of COMMAND; 128 + N: signal N ended it.
    """
    run = load_config(config_path).run
    environment = {"PYTHONUNBUFFERED": "1", **os.environ, RUN_VARIABLE: run.name}
    guard = Guard(run=run.name, folder=run.guard_dir, grace_s=grace_s)
    found = run_guarded(guard, words, environment, SystemClock())
    if not found.is_finished:
        with suppress(OSError):  # a closed terminal must not change the exit code
            click.echo(f"{words[0]} {ending_text(found)}; its output is in {found.log}", err=True)
    return found.shell_code
