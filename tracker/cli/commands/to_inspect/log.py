"""`tracker log`: what changed what people see of a run, and when."""

from datetime import UTC, datetime, timedelta
from itertools import dropwhile
from pathlib import Path

import click
from rich.console import Console

from eval_jobs.host.clock import SystemClock
from tracker.api.opening import open_project
from tracker.api.references import choose_run
from tracker.cli.commands.to_operate.silence import length_of
from tracker.cli.json_output import json_option, print_json
from tracker.cli.options import COUNT, config_option
from tracker.domain.log.events import RunEvent, event_text
from tracker.domain.records.display import one_line


def _since(ctx: click.Context, param: click.Parameter, value: str | None) -> int | datetime | None:
    if value is None or value.isdecimal():
        return None if value is None else int(value)
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        return SystemClock().now() - (length_of(ctx, param, value) or timedelta())
    return at if at.tzinfo else at.replace(tzinfo=UTC)


@click.command("log")
@click.argument("run", required=False)
@config_option
@json_option(tuple[RunEvent, ...])
@click.option("--last", type=COUNT, default=50, show_default=True, help="Number of newest events to show; 0: all.")
@click.option("--since", callback=_since, metavar="STEP|TIME", help="From this step, time in UTC or age, such as 2h.")
def command(*, run: str | None, config_path: Path, as_json: bool, last: int, since: int | datetime | None) -> None:
    """Show what changed what people see of RUN: checkpoints, verdicts with their cause, alerts, settings, watchers.

    RUN defaults to run.name, with its sub-folders. Times are in UTC.
    """
    project = open_project(config_path)
    history, own = project.history, project.config.run.name
    run_id = choose_run(sorted({own, *history.runs(), *history.followed_runs()}), run, own=own)
    events = history.events(run_id, last=last if since is None else 0)
    if since is not None:
        events = tuple(dropwhile(lambda event: not _is_at(event, since), events))[-last:]
    if as_json:
        print_json(events)
        return
    console = Console()
    if not events:
        console.print("no events: the log begins with the next checkpoint, verdict or alert", highlight=False)
    for event in events:
        step = "" if event.step is None else f"step {event.step}"
        where = "" if event.run_id == run_id else f"{one_line(event.run_id)}: "
        line = f"{event.at:%Y-%m-%d %H:%M:%S}  {step:<10}  {event.kind:<9}  {where}{event_text(event)}"
        console.print(line, markup=False, highlight=False, soft_wrap=not console.is_terminal)


def _is_at(event: RunEvent, since: int | datetime) -> bool:
    if isinstance(since, datetime):
        return event.at >= since
    return event.step is not None and event.step >= since
