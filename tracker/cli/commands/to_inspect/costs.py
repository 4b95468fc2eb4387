"""`tracker costs`: what the evaluations of a run cost."""

from pathlib import Path

import click
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from tracker.api.opening import open_project
from tracker.api.references import known_run
from tracker.cli.json_output import json_option, print_json
from tracker.cli.options import COUNT, config_option
from tracker.cli.tables.render import number_columns, plain_table
from tracker.domain.overview.costs import Asked, RunCosts, cost_headline, run_costs
from tracker.domain.records.display import duration_text, one_line, tokens_text


@click.command("costs")
@click.argument("run", required=False)
@config_option
@json_option(tuple[RunCosts, ...])
@click.option("--last", type=COUNT, default=30, show_default=True, help="Newest evaluations to show; 0: all.")
def command(*, run: str | None, config_path: Path, as_json: bool, last: int) -> None:
    """Show time, tokens and GPU or CPU time for every checkpoint of RUN, or of all runs of the project.

    The summary below the table covers the whole run. --json prints everything, with times in seconds.
    """
    history = open_project(config_path).history
    runs = (known_run(history, run),) if run else history.runs()
    costs = tuple(run_costs(name, history.records(name)) for name in runs)
    if as_json:
        print_json(costs)
        return
    console = Console()
    if not costs:
        console.print("no results yet: run `tracker watch` to evaluate checkpoints")
    for one in costs:
        console.print(
            Text(one_line(one.run_id), "bold"),
            run_costs_table(one, last=last),
            Text(f"\n{cost_headline(one)}.", "bold"),
            sep="\n",
        )


def run_costs_table(costs: RunCosts, *, last: int) -> Table:
    """Return one line for each evaluation, with its part if any was partial; `last`: number of newest ones, 0: all."""
    has_parts = any(row.asked is not Asked.WHOLE for row in costs.checkpoints)
    parts = [Column("part", no_wrap=True)] if has_parts else []
    names = number_columns("loading", "scoring", "latency\ntest", "tokens\nin", "tokens\nout", "GPU", "CPU")
    table = plain_table(*number_columns("step"), *parts, *names)
    for row in costs.checkpoints[-last:]:
        cost, cells = row.cost, [str(row.step)]
        if has_parts:
            cells.append(row.asked)
        cells += map(duration_text, (cost.loading_s, cost.evaluating_s, cost.probing_s))
        cells += map(tokens_text, (cost.input_tokens, cost.output_tokens))
        table.add_row(*cells, *map(duration_text, (cost.gpu_s, cost.cpu_s)))
    return table
