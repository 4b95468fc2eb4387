"""`tracker evaluate CHECKPOINT`: evaluate one checkpoint now."""

from pathlib import Path

import click
from rich.console import Console

from eval_jobs.errors import ExitCode
from eval_jobs.types import EvalRecord
from tracker.api.opening import open_project
from tracker.cli.evaluating import ending_of, evaluate_now
from tracker.cli.json_output import json_option, print_json
from tracker.cli.options import config_option
from tracker.cli.tables.render import print_line, report_lines
from tracker.cli.tables.report_json import report_document
from tracker.domain.records.losses import Measure
from tracker.domain.records.types import WORSE, Report, Verdict, VerdictWord

NO_NEWS = {VerdictWord.MISSING, VerdictWord.INCOMPARABLE}


@click.command("evaluate")
@click.argument("checkpoint")
@click.option("--step", type=click.IntRange(min=0), help="Training step. Default: from its name or trainer state.")
@config_option
@json_option(tuple[Report, ...])
def command(*, checkpoint: str, step: int | None, config_path: Path, as_json: bool) -> int:
    """Evaluate CHECKPOINT, a folder or s3://bucket/prefix.

    A model without a step, such as a merged one, is evaluated as the run RUN/FOLDER.

    Exit code 0: no regression, even if inconclusive or suspect; 1: regression; 2: bad settings; 3: coverage too low,
    or incomparable; 4: failure, such as an engine that died, or a result that is not delivered.
    """
    project = open_project(config_path)
    console = Console(stderr=as_json)
    done = evaluate_now(project, checkpoint, console, step=step)
    reports = tuple(report for _, report in done.results)
    if as_json:
        print_json(list(map(report_document, reports)))
    for report in reports:
        console.print(*report_lines(report), sep="\n")
    code = _exit_code(tuple(record for record, _ in done.results), reports)
    end = ending_of(project, {(report.run_id, report.step) for report in reports}, unsent=done.unsent)
    if end.code:
        print_line(console, "done", end.line, style="red")
    return code if code in (ExitCode.REGRESSION, ExitCode.BROKEN) else max(code, end.code)


def _exit_code(records: tuple[EvalRecord, ...], reports: tuple[Report, ...]) -> int:
    for record in records:
        if len(record.results) < len(record.outcomes):
            return ExitCode.BROKEN
    words: set[VerdictWord] = set()
    latency: set[VerdictWord] = set()
    for report in reports:
        words.update(verdict.word for verdict in (*report.verdicts, *_losses(report)))
        latency.update(verdict.word for verdict in report.latency)
    if WORSE & (words | latency):
        return ExitCode.REGRESSION
    if words & NO_NEWS:
        return ExitCode.UNKNOWN
    return ExitCode.OK


def _losses(report: Report) -> tuple[Verdict, ...]:
    """Return findings that count as losses. Longer answers alone do not: the score shows whether they are worse."""
    return tuple(verdict for verdict in report.findings if verdict.measure is not Measure.OUTPUT_LENGTH)
