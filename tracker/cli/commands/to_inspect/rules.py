"""`tracker rules test LOG...`: what the rules for logs find in a file."""

import difflib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
from rich.console import Console

from eval_jobs.errors import ConfigError, ExitCode
from eval_jobs.host.secrets import held_secrets, masked
from tracker.adapters.health.rule_guard import GuardedRules
from tracker.adapters.health.rule_plugins import RulePlugins
from tracker.adapters.trainer_files.log_lines import log_pieces
from tracker.app.health.follow import Reading, read_piece
from tracker.cli.json_output import json_option, print_json
from tracker.cli.options import FILE
from tracker.cli.tables.health import log_table
from tracker.config import load_config
from tracker.config.health import load_rules
from tracker.domain.health.logs.log_times import LogTimes
from tracker.domain.health.logs.masking import without_keys
from tracker.domain.health.processes.pace import HangLimits, replay
from tracker.domain.health.report import LogReport, log_report
from tracker.domain.health.rules.lines import NAN
from tracker.domain.health.run_state import RunState
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
    reading, plugins, limits = _settings(rules_path, config_path)
    named = (*(rule.name for rule in reading.rules), *(condition.name for condition in reading.conditions))
    known = {NAN, *map(str, SeriesName), *named, *plugins}
    wanted = [_parsed(text, known) for text in expected]
    reports = [_report(path, reading, limits) for path in logs]
    if as_json:
        print_json(reports)
    else:
        console = Console()
        for report in reports:
            console.print(log_table(report))
    return _compared(reports, wanted)


def _settings(rules_path: Path | None, config_path: Path | None) -> tuple[Reading, tuple[str, ...], HangLimits]:
    """Return how logs are read, the names of rules of other packages, and when a training hangs."""
    secrets = held_secrets(os.environ)
    reading = Reading(rules=(), fits=GuardedRules(), mask=lambda text: masked(without_keys(text), secrets))
    if config_path is None:
        rules = load_rules(rules_path)
        return replace(reading, rules=rules.lines, conditions=rules.conditions), (), HangLimits()
    if rules_path is not None:
        raise ConfigError("--rules and --config exclude each other", hint="pass one of them")
    health = load_config(config_path).health
    rules = health.to_rules()
    reading = replace(
        reading,
        rules=rules.lines,
        conditions=rules.conditions,
        formats=health.to_formats(),
        code=RulePlugins(health.plugins) if health.plugins else None,
    )
    return reading, health.plugins, health.hang.to_limits()


def _report(path: Path, reading: Reading, limits: HangLimits) -> LogReport:
    run, state, times = reading.of(RunState()), reading.of_stream(str(path), None), LogTimes()
    run.trouble.hits, lines = [], 0
    for piece in log_pieces(path):
        read_piece(piece, run, state)
        for line in piece.lines:
            times.take(line.text)
        lines = piece.lines[-1].number if piece.lines else lines + len(piece.rows)
    return log_report(str(path), lines=lines, log=run, pace=replay(times.seconds, limits))


def _parsed(text: str, known: set[str]) -> _Expected:
    found = _EXPECTED.fullmatch(text)
    if found is None:
        raise ConfigError(f"invalid --expect {text!r}", hint="write CLASS=N, such as oom=1")
    if found[1] not in known:
        close = difflib.get_close_matches(found[1], sorted(known), n=1)
        guess = f"did you mean {close[0]}? " if close else ""
        raise ConfigError(f"--expect: unknown class {found[1]!r}", hint=f"{guess}known: {', '.join(sorted(known))}")
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
