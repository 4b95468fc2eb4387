"""`tracker rules test LOG...`: what the rules for logs find in a file."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console

from eval_jobs.errors import ConfigError, ExitCode
from eval_jobs.host.secrets import held_secrets, masked
from tracker.adapters.health.rule_guard import GuardedRules
from tracker.adapters.trainer_files.log_lines import log_lines
from tracker.cli.json_output import json_option, print_json
from tracker.cli.options import FILE
from tracker.cli.tables.health import log_table
from tracker.config import load_config
from tracker.config.health import HealthRules, load_rules
from tracker.domain.health.line_rules import NAN
from tracker.domain.health.logs.row_reader import RowReader
from tracker.domain.health.logs.user_formats import LogFormat
from tracker.domain.health.report import LogReport, log_report
from tracker.domain.health.run_log import StreamState, read_log
from tracker.domain.health.series.loss import SeriesName

_EXPECTED = re.compile(r"(\w+)=(\d+)")


@dataclass(frozen=True, kw_only=True)
class _Expected:
    name: str
    incidents: int


@click.group("rules")
def command() -> None:
    """Try the rules that find trouble in a trainer's log."""


@command.command("test")
@click.argument("logs", nargs=-1, required=True, metavar="LOG...", type=FILE)
@click.option("--rules", "rules_path", type=FILE, help="File with [[rule]] tables of your own.")
@click.option("--config", "config_path", type=FILE, help="Project with rules and formats.")
@click.option(
    "--expect", "expected", multiple=True, metavar="CLASS=N", help="Incidents that must be found (repeatable)."
)
@json_option(tuple[LogReport, ...])
def test(
    *,
    logs: tuple[Path, ...],
    rules_path: Path | None,
    config_path: Path | None,
    expected: tuple[str, ...],
    as_json: bool,
) -> int:
    """Read LOG files, and show the incidents, the steps and what the loss does.

    With --expect, exit code 1: another number of incidents of a class was found.
    """
    rules, formats = _rules(rules_path, config_path)
    named = (*(rule.name for rule in rules.lines), *(condition.name for condition in rules.conditions))
    known = {NAN, *map(str, SeriesName), *named}
    wanted = [_parsed(text, known) for text in expected]
    secrets = held_secrets(os.environ)
    reports = []
    for path in logs:
        lines = (masked(line, secrets) for line in log_lines(path))
        state = StreamState(rows=RowReader(is_csv=path.suffix == ".csv", formats=formats))
        found = read_log(lines, rules.lines, rules.conditions, GuardedRules(), state)
        reports.append(log_report(str(path), found))
    if as_json:
        print_json(reports)
    else:
        console = Console()
        for report in reports:
            console.print(log_table(report))
    return _compared(reports, wanted)


def _rules(rules_path: Path | None, config_path: Path | None) -> tuple[HealthRules, tuple[LogFormat, ...]]:
    if config_path is None:
        return load_rules(rules_path), ()
    if rules_path is not None:
        raise ConfigError("--rules and --config exclude each other", hint="pass one of them")
    health = load_config(config_path).health
    return health.to_rules(), health.to_formats()


def _parsed(text: str, known: set[str]) -> _Expected:
    found = _EXPECTED.fullmatch(text)
    if found is None or found[1] not in known:
        hint = f"write CLASS=N, such as oom=1; classes: {', '.join(sorted(known))}"
        raise ConfigError(f"invalid --expect {text!r}", hint=hint)
    return _Expected(name=found[1], incidents=int(found[2]))


def _compared(reports: Sequence[LogReport], wanted: Sequence[_Expected]) -> int:
    names: list[str] = []
    for report in reports:
        names += (incident.name for incident in report.incidents)
        names += (finding.name for finding in report.findings)
    code = ExitCode.OK
    for one in wanted:
        found = names.count(one.name)
        if found != one.incidents:
            click.echo(f"expected {one.name}={one.incidents}, found {found}", err=True)
            code = ExitCode.REGRESSION
    return code
