"""`tracker guard -- COMMAND...`: run a training so that its output, its end and its orphans are known."""

import os
from contextlib import suppress
from pathlib import Path

import click
from click.exceptions import Exit
from rich.console import Console

from eval_jobs.errors import ExitCode, ProgramNotExecutable, ProgramNotFound, TrackerError
from eval_jobs.host.clock import SystemClock
from tracker.adapters.guarded_command import Guard, readable, run_guarded
from tracker.cli.log_text import show_error
from tracker.cli.options import config_option
from tracker.cli.tables.findings import findings_table
from tracker.config import Config, load_config
from tracker.domain.health.guarded import ending_text
from tracker.domain.readiness.finding import Level, errors_in
from tracker.wiring.training import PlannedTraining, examine_training

RUN_VARIABLE = "TRACKER_RUN"


class GuardCommand(click.Command):
    """A command whose own errors are no exit codes that the guarded one may have, too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments."""
        try:
            return super().parse_args(ctx, args)
        except click.ClickException as error:
            error.show()
            raise Exit(ExitCode.NOT_STARTED) from error

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; an error with an exit code of its own keeps it."""
        try:
            return super().invoke(ctx)
        except (ProgramNotFound, ProgramNotExecutable):
            raise
        except TrackerError as error:
            show_error(error)
            raise Exit(ExitCode.NOT_STARTED) from error


@click.command("guard", cls=GuardCommand, context_settings={"allow_interspersed_args": False})
@config_option
@click.option(
    "--grace-s",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="Seconds between SIGTERM and SIGKILL.",
)
@click.option("--check/--no-check", "is_checked", default=True, help="Check the machine first.")
@click.argument("words", nargs=-1, required=True, metavar="-- COMMAND...", type=click.UNPROCESSED)
def command(*, config_path: Path, grace_s: float, is_checked: bool, words: tuple[str, ...]) -> int:
    """Run a training, and record its output and how it ended.

    If `tracker doctor` finds that the training would stop here, it is not started.

    `tracker watch` follows the output. Signals are passed on; a second Ctrl-C, like SIGTERM, kills the command
    after --grace-s. What it leaves behind is ended, or waited for if it succeeded.

    The exit code is that of COMMAND; 128 + N: signal N ended it; 125 to 127: it was not started.
    """
    config = load_config(config_path)
    if is_checked and _has_errors(config):
        return ExitCode.NOT_STARTED
    run = config.run
    environment = {"PYTHONUNBUFFERED": "1", **os.environ, RUN_VARIABLE: run.name}
    guard = Guard(run=run.name, folder=run.guard_dir, grace_s=grace_s)
    found = run_guarded(guard, words, environment, SystemClock())
    if not found.is_finished:
        with suppress(OSError):  # a closed terminal must not change the exit code
            click.echo(f"{readable(words[0])} {ending_text(found)}; its output is in {found.log}", err=True)
    return found.shell_code


def _has_errors(config: Config) -> bool:
    """Print what may go wrong here; return whether it would stop the training."""
    findings = examine_training(PlannedTraining(), config)
    problems = [finding for finding in findings if finding.level in {Level.WARNING, Level.ERROR}]
    if problems:
        Console(stderr=True, highlight=False).print(findings_table(problems))
    if not errors_in(findings):
        return False
    click.echo("not started; hint: correct the errors above, or pass --no-check", err=True)
    return True
