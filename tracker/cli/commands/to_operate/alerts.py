"""`tracker alerts`: open alerts, their delivery, and tests of channels."""

import shlex
from collections.abc import Iterator, Sequence
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
from tracker.cli.json_output import json_option, print_json
from tracker.cli.options import config_option
from tracker.cli.tables.render import plain_table
from tracker.domain.overview.run import open_gaps, overview
from tracker.domain.overview.standings import blind_spots
from tracker.domain.records.alerts import (
    Alert,
    AlertKind,
    AlertMessage,
    AlertState,
    AlertSubject,
    ChannelState,
    Silence,
    SubjectKind,
    silenced_text,
)
from tracker.domain.records.display import NOTHING, count_text, one_line
from tracker.ports import Notifier
from tracker.wiring.project import Project, channels_of


@dataclass(frozen=True, kw_only=True)
class AlertsView:
    """Result of `tracker alerts list`."""

    open: tuple[Alert, ...]
    channels: tuple[ChannelState, ...]
    silences: tuple[Silence, ...]
    blind_spots: tuple[str, ...] = ()
    """What is unknown at the newest step of each run, such as a missing result."""


@dataclass(frozen=True, kw_only=True)
class DeliveryTest:
    """Result of `tracker alerts test` for one channel."""

    channel: str
    is_delivered: bool
    response: str = ""
    error: str = ""
    hint: str = ""


@click.group("alerts")
def command() -> None:
    """List open alerts and their delivery; test a channel."""


@command.command("list")
@config_option
@json_option(AlertsView)
def list_(*, config_path: Path, as_json: bool) -> None:
    """List open alerts, pending deliveries and silences."""
    project = open_project(config_path)
    alerting = project.alerting
    view = AlertsView(
        open=_open(project),
        channels=alerting.channels(),
        silences=alerting.silences(),
        blind_spots=tuple(_blind_spots(project)),
    )
    if as_json:
        print_json(view)
        return
    Console().print(alerts_view(view))


@command.command("test")
@click.argument("channel", required=False)
@config_option
@json_option(tuple[DeliveryTest, ...])
def test(*, channel: str | None, config_path: Path, as_json: bool) -> int:
    """Send a test message to CHANNEL, or to all channels, and show the response.

    Exit code 0: every message was accepted; 4: a delivery failed.
    """
    project = open_project(config_path)
    message = trial_message(project.config.run.name, SystemClock().now())
    sent = [_sent(one, message) for one in _chosen(channels_of(project.config), channel)]
    if as_json:
        print_json(sent)
    else:
        Console().print(Group(*(line for one in sent for line in _sent_lines(one))))
    return ExitCode.OK if all(one.is_delivered for one in sent) else ExitCode.BROKEN


@command.command("rename")
@click.argument("old")
@click.argument("new")
@config_option
def rename(*, old: str, new: str, config_path: Path) -> None:
    """Move pending alerts and delivery state of the renamed channel OLD to NEW.

    NEW is also notified when alerts that OLD received are resolved. Restart `tracker watch` first, so that it
    loads NEW from tracker.toml.
    """
    project = open_project(config_path)
    _check_gone(project, old)
    _chosen(channels_of(project.config), new)
    waiting = _waiting_for(project).get(old, 0)
    lasting = {alert.fingerprint for alert in _open(project)}
    moved, now = project.alerting.hand_over(old, new), SystemClock().now()
    if not waiting and not moved:
        raise _unknown(project, old)
    over = (a for a in moved if a.fingerprint not in lasting)  # resolved while no channel had this name
    ends = [replace(a, state=AlertState.RESOLVED, message="resolved", raised_at=now) for a in over]
    project.alerting.publish(ends)
    click.echo(f"moved {one_line(old)} to {new}: {count_text(waiting, 'alert')} pending")
    project.alerting.close()


@command.command("discard")
@click.argument("channel")
@config_option
def discard(*, channel: str, config_path: Path) -> None:
    """Discard alerts pending for a removed CHANNEL. Open alerts remain in `tracker alerts list`."""
    project = open_project(config_path)
    _check_gone(project, channel)
    if channel not in _waiting_for(project):
        raise _unknown(project, channel)
    lost = project.alerting.give_up(channel)
    click.echo(f"discarded {count_text(lost, 'alert')} for {one_line(channel)}")


def trial_message(run_id: str, now: datetime) -> AlertMessage:
    """Return the message of `tracker alerts test`. Pure."""
    trial = Alert(
        fingerprint=f"test of {run_id}",
        run_id=run_id,
        step=None,
        kind=AlertKind.TEST,
        subject=AlertSubject(kind=SubjectKind.TEST),
        state=AlertState.FIRING,
        message="this is a test message: alerts of this run are delivered to this channel",
        command="tracker alerts list",
        raised_at=now,
    )
    return AlertMessage(run_id=run_id, step=None, alerts=(trial,))


def alerts_view(view: AlertsView) -> RenderableType:
    """Return a table of open alerts, followed by channels and silences. Pure."""
    shown: list[RenderableType] = [_table(view.open) if view.open else Text("no open alerts")]
    shown += [Text(f"{one_line(spot)}; see `tracker history`", style="yellow") for spot in view.blind_spots]
    shown += [_channel_line(state) for state in view.channels] or [
        Text('no channel configured: alerts are only listed here (see "Get alerts" in the documentation)', style="dim")
    ]
    shown += [_silence_line(silence) for silence in view.silences]
    return Group(*shown)


def _open(project: Project) -> tuple[Alert, ...]:
    return tuple(alert for run in _runs(project) for alert in project.history.open_alerts(run))


def _runs(project: Project) -> list[str]:
    own = project.config.run.name
    return sorted({own, *(run for run in project.history.runs() if is_of(run, own))})


def _blind_spots(project: Project) -> Iterator[str]:
    history = project.history
    for run in _runs(project):
        reports = history.outlines(run)
        for spot in blind_spots(overview(reports, open_gaps(reports, history.gaps(run)))):
            yield f"{run}: {spot}"


def _sent(channel: Notifier, message: AlertMessage) -> DeliveryTest:
    try:
        response = channel.notify(message)
    except AlertError as error:
        return DeliveryTest(channel=channel.name, is_delivered=False, error=error.message, hint=error.hint)
    return DeliveryTest(channel=channel.name, is_delivered=True, response=response)


def _sent_lines(sent: DeliveryTest) -> Iterator[Text]:
    if sent.is_delivered:
        yield Text(f"{sent.channel}: delivered; response: {one_line(sent.response)}")
        return
    yield Text(f"{sent.channel}: not delivered: {one_line(sent.error)}", style="red")
    yield Text(f"    hint: {one_line(sent.hint)}")


def _chosen(channels: Sequence[Notifier], name: str | None) -> Sequence[Notifier]:
    if not channels:
        raise ConfigError(
            "no channel configured", hint='add an [[alerts.channel]] table (see "Get alerts" in the documentation)'
        )
    chosen = [channel for channel in channels if name in (None, channel.name)]
    if not chosen:
        known = ", ".join(channel.name for channel in channels)
        raise ConfigError(f"no channel named {name!r}", hint=f"configured: {known}")
    return chosen


def _check_gone(project: Project, name: str) -> None:
    if name in [state.name for state in project.alerting.channels() if state.is_configured]:
        raise ConfigError(f"channel {name!r} is still configured", hint="remove it from tracker.toml first")


def _waiting_for(project: Project) -> dict[str, int]:
    return {state.name: state.waiting for state in project.alerting.channels() if not state.is_configured}


def _unknown(project: Project, name: str) -> ConfigError:
    known = ", ".join(map(one_line, _waiting_for(project))) or "none"
    return ConfigError(f"no alerts pending for channel {name!r}", hint=f"removed channels with pending alerts: {known}")


def _table(alerts: Sequence[Alert]) -> Table:
    table = plain_table()
    table.add_column("since (UTC)", no_wrap=True)
    table.add_column("run", overflow="fold")
    table.add_column("step", justify="right", no_wrap=True)
    table.add_column("what", no_wrap=True)
    table.add_column("message as sent", overflow="fold", ratio=1)
    for alert in alerts:
        table.add_row(
            f"{alert.raised_at.astimezone(UTC):%Y-%m-%d %H:%M}",
            Text(one_line(alert.run_id)),
            NOTHING if alert.step is None else str(alert.step),
            alert.kind,
            Text(one_line(alert.message)),
        )
    return table


def _channel_line(state: ChannelState) -> Text:
    if not state.waiting:
        return Text(f"channel {state.name}: nothing pending", style="dim")
    if not state.is_configured:
        name = shlex.quote(one_line(state.name))
        return Text(
            f"channel {one_line(state.name)}: removed from tracker.toml, {count_text(state.waiting, 'alert')} pending "
            f"(`tracker alerts rename {name} NEW` if it was renamed, or `tracker alerts discard {name}`)",
            style="yellow",
        )
    status = "silenced" if state.is_silenced else one_line(state.last_error)
    why = f": {status}" if status else ""
    return Text(f"channel {state.name}: {count_text(state.waiting, 'alert')} pending{why}", style="yellow")


def _silence_line(silence: Silence) -> Text:
    until = f"{silence.ends_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    return Text(f"silenced until {until}: {silenced_text(silence)} ({one_line(silence.reason)})")
