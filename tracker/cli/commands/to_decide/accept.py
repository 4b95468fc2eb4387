"""`tracker accept CHECKPOINT BENCHMARK`: accept a score as the new baseline."""

from pathlib import Path

import click

from tracker.api.acting import accepted_level
from tracker.api.opening import open_project
from tracker.cli.json_output import json_option, print_json
from tracker.cli.options import config_option
from tracker.domain.records.display import one_line
from tracker.domain.records.losses import Acceptance


@click.command("accept")
@click.argument("checkpoint")
@click.argument("benchmark")
@click.option("--reason", required=True, help="Reason, stored and shown beside the verdicts.")
@config_option
@json_option(Acceptance)
def command(*, checkpoint: str, benchmark: str, reason: str, config_path: Path, as_json: bool) -> None:
    """Accept the score of BENCHMARK at CHECKPOINT as its new baseline.

    This ends an open loss of BENCHMARK; later verdicts ignore earlier checkpoints.

    CHECKPOINT is STEP, RUN@STEP, latest, best, best:BENCHMARK or models:/NAME@ALIAS.
    """
    acceptance = accepted_level(open_project(config_path), checkpoint, benchmark, reason)
    if as_json:
        print_json(acceptance)
        return
    what = f"{one_line(benchmark)} in {one_line(acceptance.run_id)} at step {acceptance.step}"
    click.echo(f"accepted the score of {what}; its verdicts now ignore checkpoints before step {acceptance.from_step}")
