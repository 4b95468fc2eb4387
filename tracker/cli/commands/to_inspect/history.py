"""`tracker history`: scores and verdicts by step."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from tracker.api.opening import open_project
from tracker.api.references import named_run
from tracker.cli.json_output import json_option, print_json
from tracker.cli.options import COUNT, config_option
from tracker.cli.tables.render import gaps_table, history_table, unfit_lines
from tracker.cli.tables.report_json import HistoryDocument, report_document
from tracker.domain.alerts.training import incident_text, state_text
from tracker.domain.calibration.repetition_text import repetitions_text
from tracker.domain.overview.run import newest_of_reports, open_gaps
from tracker.domain.records.display import one_line, pending_text
from tracker.domain.records.types import RULES_VERSION, Gap, Report
from tracker.domain.scores.series_changes import change_lines
from tracker.ports import MeasurementStore, RunHistory
from tracker.wiring.project import Project


@click.command("history")
@click.argument("run", required=False)
@config_option
@json_option(HistoryDocument)
@click.option("--last", type=COUNT, default=30, show_default=True, help="Number of newest steps to show; 0: all.")
def command(*, run: str | None, config_path: Path, as_json: bool, last: int) -> None:
    """Show the scores and verdicts of RUN, or of all runs of the project, by step.

    The summary below the table covers the whole run. --json prints everything.
    """
    project = open_project(config_path)
    history = project.history
    known = sorted({*history.runs(), *history.followed_runs()})
    runs = (named_run(known, run),) if run else known
    if as_json:
        reports: list[dict[str, object]] = []
        gaps: list[Gap] = []
        for name in runs:
            of_run = history.reports(name)
            newest = newest_of_reports(of_run)
            reports += ({**report_document(one), "newest_of": newest[one.plan_id]} for one in of_run)
            gaps += open_gaps(of_run, history.gaps(name))
        print_json({"reports": reports, "gaps": gaps})
        return
    console = Console()
    if not runs:
        console.print("no results yet: run `tracker watch` to evaluate checkpoints")
    for number, name in enumerate(runs):
        if number > 0:
            console.print()
        _show_run(console, project, name, last=last)


def _show_run(console: Console, project: Project, name: str, *, last: int) -> None:
    history = project.history
    outlines = history.outlines(name)
    gaps = open_gaps(outlines, history.gaps(name))
    if outlines or gaps:
        console.print(history_table(outlines, gaps, last=last))
    for line in _training(history, name, has_scores=bool(outlines)):
        console.print(line)
    for line in _repetitions(history, outlines, project.config.policy.min_effect):
        console.print(line)
    for text in _decisions(history, name):
        console.print(Text(text, style="dim"))
    if gaps:
        console.print(gaps_table(gaps, last=last))
    if older := sum(one.rules_version < RULES_VERSION for one in outlines):
        text = f"{older} of {len(outlines)} checkpoints judged by the rules of an earlier version of the tracker"
        console.print(Text(text, style="dim"))
    pending = project.queue.open_steps(name, sweeps=False)
    if earlier := sorted(step for step in pending if step < max((one.step for one in outlines), default=0)):
        text = f"provisional: {pending_text(earlier)}, which may change later verdicts"
        console.print(Text(text, style="dim"))


def _decisions(history: RunHistory, name: str) -> Iterator[str]:
    """Yield the changes of settings and the accepted levels."""
    yield from change_lines(history.series_changes(name))
    for one in history.acceptances(name):
        yield one_line(f"{one.benchmark}: level at step {one.step} accepted: {one.reason}")


def _training(history: RunHistory, name: str, *, has_scores: bool) -> Iterator[Text]:
    progress = next((one for one in history.progress(name) if one.run_id == name), None)
    if progress is not None and not has_scores:
        step = "no step" if progress.last_step is None else f"step {progress.last_step}"
        yield Text(one_line(f"{name}: no checkpoint evaluated yet; its logs are at {step}"))
    for one in history.training_incidents(name):
        if one.is_alert:
            text = one_line(f"training: {incident_text(one)}: {state_text(one)} ({one.id})")
            yield Text(text, style="" if one.is_over else "bold red")


def _repetitions(history: MeasurementStore, outlines: Sequence[Report], min_effect: float) -> Iterator[Text]:
    """Yield the run-to-run noise of the newest checkpoint's evaluation, if it was calibrated."""
    calibrations = history.calibrations()
    newest = max(outlines, key=lambda report: (report.step, report.created_at), default=None)
    record = None if newest is None or not calibrations else history.bare_record(newest.plan_id)
    if record is None:
        return
    # Imported here: scipy is slow to import, and most histories do not need it.
    from tracker.domain.calibration.noise import repetitions_of

    found = repetitions_of(calibrations, record, min_effect=min_effect)
    if found:
        yield Text(one_line(repetitions_text(found)), style="dim")
    yield from unfit_lines(found)
