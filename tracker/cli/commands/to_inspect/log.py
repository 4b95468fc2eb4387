"""`tracker log`: what changed what people see of a run, and when."""

from collections.abc import Callable
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

IsBefore = Callable[[RunEvent], bool]


def _before(ctx: click.Context, param: click.Parameter, since: str | None) -> IsBefore | None:
    if since is None:
        return None
    if since.isdecimal():
        return lambda event: event.step is None or event.step < int(since)
    try:
        at = datetime.fromisoformat(since)
    except ValueError:
        at = SystemClock().now() - (length_of(ctx, param, since) or timedelta())
    begin = at if at.tzinfo else at.replace(tzinfo=UTC)
    return lambda event: event.at < begin


@click.command("log")
@click.argument("run", required=False)
@config_option
@json_option(tuple[RunEvent, ...])
@click.option("--last", type=COUNT, default=50, show_default=True, help="Newest events to show; 0: all.")
@click.option("--since", "is_before", callback=_before, metavar="STEP|TIME", help="From a step, time or age (2h) on.")
def command(*, run: str | None, config_path: Path, as_json: bool, last: int, is_before: IsBefore | None) -> None:
    """Show what changed in RUN (default: run.name), when and why. Times are in UTC."""
    project = open_project(config_path)
    history, own = project.history, project.config.run.name
    run_id = choose_run(sorted({own, *history.runs(), *history.followed_runs()}), run, own=own)
    events = history.events(run_id, last=0 if is_before else last)
    if is_before is not None:
        events = tuple(dropwhile(is_before, events))[-last:]
    if as_json:
        print_json(events)
        return
    console = Console()
    if not events:
        console.print("no events" if is_before else "no events yet: `tracker watch` logs what it finds and decides")
    for event in events:
        step = "" if event.step is None else f"step {event.step}"
        where = "" if event.run_id == run_id else f"{one_line(event.run_id)}: "
        line = f"{event.at:%Y-%m-%d %H:%M:%S}  {step:<10}  {event.kind:<9}  {where}{event_text(event)}"
        console.print(line, markup=False, highlight=False, soft_wrap=not console.is_terminal)
