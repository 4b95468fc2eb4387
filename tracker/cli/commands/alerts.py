"""`tracker alerts`: what is wrong now, who was told, and whether a channel works."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from eval_jobs.errors import AlertError, ConfigError, ExitCode
from eval_jobs.host.clock import SystemClock
from eval_jobs.records.run_scope import is_of
from tracker.api.opening import open_project
from tracker.cli.options import config_option, json_option, json_text
from tracker.cli.tables.render import plain_table
from tracker.domain.records.alerts import (
    Alert,
    AlertKind,
    AlertMessage,
    AlertState,
    AlertSubject,
    ChannelState,
    Silence,
    SubjectKind,
)
from tracker.domain.records.display import count_text, one_line
from tracker.domain.records.subjects import silenced_text
from tracker.ports import Notifier
from tracker.wiring.alerting import channels_of
from tracker.wiring.project import Project


@dataclass(frozen=True, kw_only=True)
class AlertsView:
    """What `tracker alerts list` shows."""

    open: tuple[Alert, ...]
    channels: tuple[ChannelState, ...]
    silences: tuple[Silence, ...]


@click.group("alerts")
def command() -> None:
    """Show what is wrong now and who was told, or try a channel."""


@command.command("list")
@config_option
@json_option
def list_(*, config_path: Path, as_json: bool) -> None:
    """Show the alerts that last, what waits for each channel, and what is silenced."""
    project = open_project(config_path)
    alerting = project.alerting
    view = AlertsView(open=_open(project), channels=alerting.channels(), silences=alerting.silences())
    if as_json:
        click.echo(json_text(AlertsView, view))
        return
    Console().print(alerts_view(view))


@command.command("test")
@click.argument("channel", required=False)
@config_option
def test(*, channel: str | None, config_path: Path) -> int:
    """Send a test message to CHANNEL, or to all of them, and show what the service answered.

    Exit code 0: every service says that it took the message; 4: one did not.
    """
    project = open_project(config_path)
    console, code = Console(), ExitCode.OK
    for one in _chosen(channels_of(project.config), channel):
        try:
            answer = one.notify(trial_message(project.config.run.name, SystemClock().now()))
        except AlertError as error:
            code = ExitCode.BROKEN
            console.print(Text(f"{one.name}: not delivered: {one_line(error.message)}", style="red"))
            console.print(Text(f"  do: {one_line(error.hint)}"))
        else:
            console.print(Text(f"{one.name}: delivered, the service answered: {one_line(answer)}"))
    return code


@command.command("move")
@click.argument("old")
@click.argument("new")
@config_option
def move(*, old: str, new: str, config_path: Path) -> None:
    """Let the channel NEW stand for OLD, which has this name no more: for what waits, and for what was told.

    Of what OLD was told NEW hears the end. Start `tracker watch` anew first: it knows the names of its start.
    """
    project = open_project(config_path)
    _check_gone(project, old)
    _chosen(channels_of(project.config), new)
    waiting = _waiting_for(project).get(old, 0)
    lasting = {alert.fingerprint for alert in _open(project)}
    moved, now = project.alerting.hand_over(old, new), SystemClock().now()
    if not waiting and not moved:
        raise _unknown(project, old)
    over = (a for a in moved if a.fingerprint not in lasting)  # while nobody had this name
    ends = [replace(a, state=AlertState.RESOLVED, message="it is over", raised_at=now) for a in over]
    project.alerting.publish(ends)
    click.echo(f"{new} stands for {one_line(old)}: {count_text(waiting, 'alert')} will be sent there")
    project.alerting.close()


@command.command("drop")
@click.argument("channel")
@config_option
def drop(*, channel: str, config_path: Path) -> None:
    """Give up the alerts that wait for CHANNEL, which is not configured any more. What is wrong stays listed."""
    project = open_project(config_path)
    _check_gone(project, channel)
    if channel not in _waiting_for(project):
        raise _unknown(project, channel)
    lost = project.alerting.give_up(channel)
    click.echo(f"{one_line(channel)} is forgotten: {count_text(lost, 'alert')} will not be sent")


def trial_message(run_id: str, now: datetime) -> AlertMessage:
    """Return a message that says that nothing happened. Pure."""
    trial = Alert(
        fingerprint=f"test of {run_id}",
        run_id=run_id,
        step=0,
        kind=AlertKind.TEST,
        subject=AlertSubject(kind=SubjectKind.TEST),
        state=AlertState.FIRING,
        message="this is a test: nothing happened, and alerts of this run arrive here",
        command="tracker alerts list",
        raised_at=now,
    )
    return AlertMessage(run_id=run_id, step=0, alerts=(trial,))


def alerts_view(view: AlertsView) -> RenderableType:
    """Return a table of what lasts, and below it channels and silences. Pure."""
    shown: list[RenderableType] = [_table(view.open) if view.open else Text("nothing is wrong")]
    shown += [_channel_line(state) for state in view.channels] or [
        Text("no channel is configured: alerts are in the log only (docs/alerts.md)", style="dim")
    ]
    shown += [_silence_line(silence) for silence in view.silences]
    return Group(*shown)


# --- private


def _open(project: Project) -> tuple[Alert, ...]:
    own, history = project.config.run.name, project.history
    runs = sorted({own, *(run for run in history.runs() if is_of(run, own))})
    return tuple(alert for run in runs for alert in history.open_alerts(run))


def _chosen(channels: Sequence[Notifier], name: str | None) -> Sequence[Notifier]:
    if not channels:
        raise ConfigError("no channel is configured", hint="add an [[alerts.channel]]: docs/alerts.md shows each kind")
    chosen = [channel for channel in channels if name in (None, channel.name)]
    if not chosen:
        known = ", ".join(channel.name for channel in channels)
        raise ConfigError(f"no channel is called {name!r}", hint=f"configured: {known}")
    return chosen


def _check_gone(project: Project, name: str) -> None:
    states = {state.name: state for state in project.alerting.channels()}
    if name in states and states[name].is_configured:
        raise ConfigError(
            f"channel {name!r} is configured: its alerts are sent to it", hint="take it out of tracker.toml first"
        )


def _waiting_for(project: Project) -> dict[str, int]:
    """Return how many alerts wait, by the name of a channel that is configured no more."""
    return {state.name: state.waiting for state in project.alerting.channels() if not state.is_configured}


def _unknown(project: Project, name: str) -> ConfigError:
    known = ", ".join(map(one_line, _waiting_for(project))) or "none"
    return ConfigError(f"nothing waits for a channel {name!r}", hint=f"not configured any more, with alerts: {known}")


def _table(alerts: Sequence[Alert]) -> Table:
    table = plain_table()
    table.add_column("since (UTC)", no_wrap=True)
    table.add_column("run", overflow="fold")
    table.add_column("step", justify="right", no_wrap=True)
    table.add_column("what", no_wrap=True)
    table.add_column("message", overflow="fold", ratio=1)
    for alert in alerts:
        table.add_row(
            f"{alert.raised_at.astimezone(UTC):%Y-%m-%d %H:%M}",
            Text(one_line(alert.run_id)),
            str(alert.step),
            alert.kind,
            Text(one_line(alert.message)),
        )
    return table


def _channel_line(state: ChannelState) -> Text:
    if not state.waiting:
        return Text(f"channel {state.name}: everything is told", style="dim")
    if not state.is_configured:
        name = shlex.quote(one_line(state.name))
        what = (
            f"{count_text(state.waiting, 'alert')} waiting, and nobody sends them: name it so again in tracker.toml, "
        )
        return Text(
            f"channel {one_line(state.name)} is not configured any more: {what}"
            f"`tracker alerts move {name} NEW` where it has another name now, or `tracker alerts drop {name}`",
            style="yellow",
        )
    said = "silenced" if state.is_silenced else one_line(state.last_error)
    why = f": {said}" if said else ""
    return Text(f"channel {state.name}: {count_text(state.waiting, 'alert')} waiting{why}", style="yellow")


def _silence_line(silence: Silence) -> Text:
    what = f"{one_line(silenced_text(silence))} of {one_line(silence.run_id)}"
    return Text(
        f"silenced until {silence.ends_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC: {what} ({one_line(silence.reason)})"
    )
