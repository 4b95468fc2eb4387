"""The `tracker` command: finds the subcommand, loads only that one, turns errors into messages and exit codes."""

import gc
import importlib
import logging
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points, version
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

import click

from eval_jobs.errors import ConfigError, ExitCode, TrackerError
from tracker.cli import interrupts
from tracker.cli.log_text import TimedLines, log_with, show_error, show_traceback

PLUGIN_GROUP = "tracker.commands"
DISTRIBUTION = "checkpoint-tracker"

_OBJECTS_UNTIL_COLLECTION = 50_000
"""Most objects of a command stay alive: a collection after every 700 objects takes a fifth of its time."""


GROUPS = {
    "Set up": {
        "init": "Create a tracker.toml for an output folder.",
        "doctor": "Check what would stop evaluations or a training here.",
        "calibrate": "Measure run-to-run noise by evaluating a checkpoint twice.",
        "import": "Import results of lm-eval, EvalScope or vllm bench.",
    },
    "Watch": {
        "watch": "Evaluate every checkpoint of a run as it appears.",
        "guard": "Run a training, and record its output and how it ended.",
        "worker": "Evaluate checkpoints for a watcher, on this or another machine.",
        "backfill": "Evaluate all checkpoints in a folder.",
        "evaluate": "Evaluate one checkpoint now.",
        "sweep": "Run benchmark sweeps, on a schedule or on demand.",
    },
    "Inspect": {
        "history": "Show scores and verdicts by step.",
        "log": "Show what changed, when and why.",
        "compare": "Compare two checkpoints sample by sample.",
        "forgetting": "Show what a run forgot, with the lost samples.",
        "costs": "Show time, tokens and GPU time for every checkpoint.",
        "report": "Write a self-contained HTML report.",
        "export": "Write results as CSV, Parquet or JSON.",
        "incidents": "Show what went wrong in the training itself, and close it.",
        "rules": "Try the rules that find trouble in a trainer's log.",
        "ui": "Start MLflow with this project's results.",
    },
    "Decide": {
        "gate": "Decide whether a candidate may replace a baseline.",
        "bisect": "Find the step at which the score of a benchmark dropped.",
        "accept": "Accept the score of a checkpoint as the new baseline.",
    },
    "Operate": {
        "alerts": "List open alerts and their delivery; test a channel.",
        "silence": "Silence alerts of a benchmark or kind for a while.",
        "engine": "Show running engines and certified weight swaps.",
        "health": "Check that the watcher or a worker is alive.",
        "gc": "Delete pinned weights and answers beyond the [keep] limits.",
    },
}
"""The commands with their summaries by group, in the order of `--help`, which imports none of them."""

COMMANDS = {name: text for group in GROUPS.values() for name, text in group.items()}
REPORT = "report"
"""Built in, but part of the layer above: found by its entry point, like the commands of plugins."""


def module_of(command: str) -> str:
    """Return the module that defines a command."""
    group = next(title for title, commands in GROUPS.items() if command in commands)
    name = "import_results" if command == "import" else command
    return f"tracker.cli.commands.to_{group.lower().replace(' ', '_')}.{name}"


_TIMED = {"stdout": ("watch", "worker", "backfill"), "stderr": ("watch", "worker", "backfill", "guard", "sweep")}
"""Commands whose lines begin with the time where the stream is no terminal, because they log for long."""


class _PipeBroken(Exception):
    """A broken pipe. Click and rich turn it into exit code 1, which would mean a regression."""

    def __init__(self, cause: BrokenPipeError, *, is_output: bool) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.is_output = is_output


@contextmanager
def _noticing_broken_pipes() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise _PipeBroken(error, is_output=_is_unread()) from error
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # rich has redirected the rest to the null device
            raise _PipeBroken(error.__context__, is_output=True) from error
        raise


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names, the built-in ones first."""
        del ctx
        return [*COMMANDS, *(point.name for point in _plugins())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command; None: there is none of that name."""
        del ctx
        if cmd_name in COMMANDS and cmd_name != REPORT:
            command: click.Command = importlib.import_module(module_of(cmd_name)).command
            return command
        return next((_loaded(point) for point in _points() if point.name == cmd_name), None)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by group."""
        del ctx
        width = max(map(len, COMMANDS))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{width}}", text) for name, text in commands.items()])
        if plugins := _plugins():
            with formatter.section("Plugins"):
                formatter.write_dl([(f"{point.name:<{width}}", _summary(point)) for point in plugins])

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401 - as click has it
    ) -> click.Context:
        """Parse the arguments; help whose reader closes the pipe early is not an error."""
        with _noticing_broken_pipes():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        with _noticing_broken_pipes():
            return super().invoke(ctx)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown name lists the known ones."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            known = ", ".join(self.list_commands(ctx))
            raise click.UsageError(f"{error.message} Commands: {known}.", ctx) from error


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version(DISTRIBUTION), prog_name="tracker")
@click.option("--debug", is_flag=True, help="Show tracebacks and debug logs.")
@click.pass_context
def cli(ctx: click.Context, *, debug: bool) -> None:
    """Evaluate every checkpoint of a training run, and detect what the model forgot.

    Start with `tracker init OUTPUT_FOLDER`, then `tracker watch`.
    """
    for name, commands in _TIMED.items():
        stream = getattr(sys, name)
        if ctx.invoked_subcommand in commands and not stream.isatty():
            setattr(sys, name, TimedLines(stream))
    asctime = "" if isinstance(sys.stderr, TimedLines) else "%(asctime)s "
    pattern = f"{asctime}%(levelname)s %(name)s: %(message)s" if debug else "%(levelname)s: %(message)s"
    log_with(logging.StreamHandler(), pattern)
    if debug:
        for package in ("eval_jobs", "tracker", "dashboards"):
            logging.getLogger(package).setLevel(logging.DEBUG)


def main() -> None:
    """Run the command line; exit codes are those of `ExitCode`."""
    gc.set_threshold(_OBJECTS_UNTIL_COLLECTION)
    for stream in (sys.stdout, sys.stderr):
        _replace_what_it_cannot_show(stream)
    interrupts.install()
    sys.excepthook = show_traceback
    try:
        code = cli.main(standalone_mode=False)
        with _noticing_broken_pipes():
            sys.stdout.flush()
    except TrackerError as error:
        show_error(error)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(ExitCode.USAGE)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(ExitCode.INTERRUPTED)
    except _PipeBroken as error:
        sys.exit(_unread() if error.is_output else _broken(error.cause))
    except Exception as error:  # noqa: BLE001 - Python's own exit code 1 would say that something was lost
        sys.exit(_broken(error))
    sys.exit(code if isinstance(code, int) else ExitCode.OK)


def _replace_what_it_cannot_show(stream: TextIO) -> None:
    """Print `?` for characters that the stream cannot encode, such as arrows, instead of raising an error."""
    if isinstance(stream, TextIOWrapper) and stream.encoding.lower() != "utf-8":
        stream.reconfigure(errors="replace")


def _broken(error: Exception) -> int:
    show_traceback(type(error), error, error.__traceback__)
    return ExitCode.BROKEN


def _unread() -> int:
    """Return the exit code of a command whose reader closed the pipe, which is not a failure."""
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), 1)  # for output that is still flushed at exit
    return ExitCode.UNREAD


def _is_unread() -> bool:
    """Return whether the reader of the output has closed the pipe, as `head -1` does."""
    output = select.poll()
    output.register(1, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in output.poll(0))


def _points() -> list[EntryPoint]:
    """Return the entry points, sorted by name; a plugin cannot replace a built-in command."""
    points = [p for p in entry_points(group=PLUGIN_GROUP) if p.name not in COMMANDS or _is_ours(p)]
    by_name = {point.name: point for point in sorted(points, key=_is_ours)}
    return [by_name[name] for name in sorted(by_name)]


def _plugins() -> list[EntryPoint]:
    return [point for point in _points() if point.name not in COMMANDS]


def _is_ours(point: EntryPoint) -> bool:
    return point.dist is not None and point.dist.name == DISTRIBUTION


def _loaded(point: EntryPoint) -> click.Command:
    if _is_ours(point):
        ours: click.Command = point.load()
        return ours
    from eval_jobs.host.plugins import PluginKind, find_plugin

    kind = PluginKind(group=PLUGIN_GROUP, what="command", setting="the command", built_in=tuple(COMMANDS))
    found = find_plugin(kind, point.name)
    command = found.load()
    if not isinstance(command, click.Command):
        what = f"{found} is not a click command (type {type(command).__name__})"
        raise ConfigError(what, hint=f"report this bug to the author of {found.origin}, or install another version")
    return command


def _summary(point: EntryPoint) -> str:
    """Return the help line of a plugin without importing it, because that may be slow or fail."""
    if point.dist is None:
        return "(plugin of an unknown package)"
    return f"(plugin: {point.dist.name} {point.dist.version})"
