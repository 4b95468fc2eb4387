"""`tracker history`: scores and verdicts by step."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from tracker.cli.checkpoints import known_run
from tracker.cli.options import config_option, json_option, json_text, open_project
from tracker.domain.overview import open_gaps
from tracker.domain.types import Gap, Report
from tracker.render import gaps_table, history_table


@click.command("history")
@click.argument("run", required=False)
@config_option
@json_option
@click.option("--last", type=click.IntRange(min=0), default=30, show_default=True, help="Newest steps to show; 0: all.")
def command(*, run: str | None, config_path: Path, as_json: bool, last: int) -> None:
    """Show scores and verdicts by step, for RUN or for every run of the project.

    The sentence below the table is about the whole run, whatever is shown. --json prints everything.
    """
    history = open_project(config_path).history
    runs = (known_run(history, run),) if run else history.runs()
    if as_json:
        reports = tuple(report for name in runs for report in history.reports(name))
        gaps = tuple(gap for name in runs for gap in open_gaps(history.reports(name), history.gaps(name)))
        click.echo(json_text(dict[str, tuple[Report | Gap, ...]], {"reports": reports, "gaps": gaps}))
        return
    console = Console()
    if not runs:
        console.print("nothing is evaluated yet: `tracker watch` does it as checkpoints appear")
    for name in runs:
        outlines = history.outlines(name)
        console.print(history_table(outlines, last=last))
        if gaps := open_gaps(outlines, history.gaps(name)):
            console.print(gaps_table(gaps, last=last))
