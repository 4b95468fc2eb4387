"""`tracker forgetting`: what a run forgot, since when, and which samples are lost."""

from pathlib import Path

import click
from rich.console import Console

from tracker.api.opening import open_project
from tracker.api.references import choose_run
from tracker.app.steps.best_of_run import newest_scores
from tracker.cli.json_output import json_option, print_json
from tracker.cli.options import COUNT, config_option
from tracker.cli.tables.forgetting import ledger_tables
from tracker.domain.forgetting.ledger import run_ledger
from tracker.domain.forgetting.texts import with_texts
from tracker.domain.forgetting.types import RunLedger
from tracker.domain.records.display import names_text
from tracker.domain.records.imported import benchmarks_without_samples


@click.command("forgetting")
@click.argument("run", required=False)
@config_option
@json_option(RunLedger)
@click.option("--samples", type=COUNT, default=3, show_default=True, help="Lost samples per benchmark.")
@click.option("--subsets", type=COUNT, default=5, show_default=True, help="Subsets per benchmark, largest loss first.")
def command(*, run: str | None, config_path: Path, as_json: bool, samples: int, subsets: int) -> None:
    """Show what a run forgot: benchmarks, subsets and phases, and the lost samples with both answers.

    RUN defaults to run.name.
    """
    project = open_project(config_path)
    history = project.history
    run_id = choose_run(history.runs(), run, own=project.config.run.name)
    records = history.records(run_id)
    ledger = run_ledger(newest_scores(run_id, history), project.policy, history.incidents(run_id), details=samples)
    ledger = with_texts(ledger, history.record)
    if as_json:
        print_json(ledger)
        return
    console = Console()
    console.print(ledger_tables(ledger, subsets=subsets))
    if names := benchmarks_without_samples(records):
        note = f"imported without samples, no forgetting analysis: {names_text(names)}"
        console.print(note, markup=False, highlight=False)
