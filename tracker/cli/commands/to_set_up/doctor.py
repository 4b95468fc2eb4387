"""`tracker doctor`: check settings, engine, model, benchmarks and stores before an evaluation."""

from pathlib import Path

import click
from rich.console import Console

from eval_jobs.errors import ExitCode
from tracker.cli.json_output import json_option, print_json
from tracker.cli.options import config_option
from tracker.cli.tables.findings import conclusion, findings_table
from tracker.config import load_config
from tracker.domain.readiness.finding import Finding, errors_in


@click.command("doctor")
@click.argument("checkpoint", required=False)
@config_option
@json_option(tuple[Finding, ...])
def command(*, checkpoint: str | None, config_path: Path, as_json: bool) -> int:
    """Check settings, engine, model, benchmarks and stores without starting an engine.

    Examines CHECKPOINT, by default the newest checkpoint of the run. Exit code 0: evaluations can begin, even with
    warnings; 2: at least one error.
    """
    config = load_config(config_path)
    from tracker.wiring.doctor import examine  # here: imports what reads data and stores
    from tracker.wiring.project import Project

    findings = examine(Project(config), checkpoint)
    if as_json:
        print_json(findings)
    else:
        Console(highlight=False).print(findings_table(findings), conclusion(findings), sep="\n")
    return ExitCode.USAGE if errors_in(findings) else ExitCode.OK
