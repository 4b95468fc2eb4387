"""`tracker incidents`: what went wrong in the training itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
from rich.console import Console

from eval_jobs.errors import ConfigError
from tracker.api.opening import open_project
from tracker.api.references import named_run
from tracker.cli.json_output import json_option, print_json
from tracker.cli.options import config_option
from tracker.cli.tables.incidents import (
    classes_text,
    failures_text,
    incident_view,
    incidents_table,
    run_failures_text,
    standing_text,
)
from tracker.domain.health.failures import Failures, failures_of, failures_of_runs
from tracker.domain.records.training import TrainingIncident
from tracker.ports import RunHistory

_LIST = "list"


@dataclass(frozen=True, kw_only=True)
class IncidentsView:
    """Result of `tracker incidents list`."""

    incidents: tuple[TrainingIncident, ...]
    failures: Failures
    runs: Mapping[str, Failures]
    """The same of each run that had incidents."""


class _ListByDefault(click.Group):
    """`tracker incidents RUN` is `tracker incidents list RUN`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the name of the command if there is none."""
        first = next(iter(args), "")
        if first not in self.commands and first != "--help":
            args = [_LIST, *args]
        return super().parse_args(ctx, args)


@click.group("incidents", cls=_ListByDefault)
def command() -> None:
    """Show what went wrong in a training, by its logs and processes. Without a command: list."""


@command.command(_LIST)
@click.argument("run", required=False)
@config_option
@click.option("--all", "is_all", is_flag=True, help="Also those that are over, or were there before the first start.")
@json_option(IncidentsView)
def list_incidents(*, run: str | None, config_path: Path, is_all: bool, as_json: bool) -> None:
    """List incidents of RUN, or of all runs.

    Without --all, those that last or deserved an alert.
    """
    project = open_project(config_path)
    history, pinned = project.history, project.pinned_steps()
    known = history.followed_runs()
    runs = known if run is None else (named_run(known, run),)
    whole = _incidents_of(history, runs, pinned)
    view = whole if is_all else replace(whole, incidents=tuple(filter(_is_worth_a_look, whole.incidents)))
    if as_json:
        print_json(view)
    elif known:
        _print(Console(), view, hidden=len(whole.incidents) - len(view.incidents), is_all=is_all)
        _print_standing(Console(), history, runs)
    else:
        click.echo("no log was read yet: `tracker watch` follows those below run.output_dir and in [health] logs")


def _incidents_of(history: RunHistory, runs: Sequence[str], pinned: Mapping[str, frozenset[int]]) -> IncidentsView:
    """Return all incidents of runs; `pinned`: steps of the checkpoints of each that are pinned."""
    of_runs: dict[str, tuple[list[TrainingIncident], set[int]]] = {}
    for name in runs:
        found = [one for one in history.training_incidents(name) if one.run_id == name]
        if found:
            evaluated = {record.plan.checkpoint.step for record in history.records(name)}
            of_runs[name] = found, evaluated | pinned.get(name, frozenset())
    incidents: list[TrainingIncident] = []
    costs: dict[str, Failures] = {}
    for name, (found, saved) in of_runs.items():
        incidents += found
        costs[name] = failures_of(found, saved)
    return IncidentsView(incidents=tuple(incidents), failures=failures_of_runs(of_runs.values()), runs=costs)


def _is_worth_a_look(incident: TrainingIncident) -> bool:
    return incident.is_alert or not (incident.is_over or incident.is_history)


def _print(console: Console, view: IncidentsView, *, hidden: int, is_all: bool) -> None:
    console.print(
        incidents_table(view.incidents) if view.incidents else "no training incident (see `tracker history` for losses)"
    )
    if is_all:
        if len(view.runs) > 1:
            for name, failures in view.runs.items():
                console.print(run_failures_text(name, failures))
        if view.failures.classes:
            console.print(classes_text(view.failures))
    if costs := failures_text(view.failures, hidden=hidden):
        console.print(costs)


def _print_standing(console: Console, history: RunHistory, runs: Sequence[str]) -> None:
    for name in runs:
        for progress in history.progress(name):
            if progress.run_id == name and progress.state:
                console.print(standing_text(progress))


@command.command("show")
@click.argument("incident_id", metavar="ID")
@config_option
@json_option(TrainingIncident)
def show_incident(*, incident_id: str, config_path: Path, as_json: bool) -> None:
    """Show the incident ID with its lines and what preceded them."""
    history = open_project(config_path).history
    incident = _named(history, incident_id)
    if as_json:
        print_json(incident)
    else:
        Console().print(incident_view(incident))


@command.command("dismiss")
@click.argument("incident_id", metavar="ID")
@click.option("--reason", required=True, help="Why it needs no attention; it stays on record.")
@config_option
def dismiss_incident(*, incident_id: str, reason: str, config_path: Path) -> None:
    """Close the incident ID, and resolve its alert.

    Further lines of it raise none.
    """
    history = open_project(config_path).history
    if not reason.strip():
        raise ConfigError("--reason is empty", hint="pass --reason TEXT; `tracker incidents show` shows it")
    incident = history.dismiss(_named(history, incident_id).id, reason.strip())
    click.echo(f"dismissed: {incident.name} of {incident.run_id}")


def _named(history: RunHistory, incident_id: str) -> TrainingIncident:
    """Return the incident with this id, or with this begin of it."""
    found: dict[str, TrainingIncident] = {}
    for run in history.followed_runs():
        found.update({one.id: one for one in history.training_incidents(run) if one.id.startswith(incident_id)})
    if len(found) == 1:
        return next(iter(found.values()))
    what = "no incident has" if not found else f"{len(found)} incidents have"
    raise ConfigError(f"{what} the id {incident_id!r}", hint="see `tracker incidents --all` for the ids")
