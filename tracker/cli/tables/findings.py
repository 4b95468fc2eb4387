"""Findings of the doctor -> terminal output. Pure."""

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from tracker.domain.readiness.checks import MODEL
from tracker.domain.readiness.finding import Finding, FindingSide, Level
from tracker.domain.readiness.surroundings import CHECKPOINTS
from tracker.domain.records.display import count_text, one_line

STYLES = {Level.OK: "green", Level.INFO: "cyan", Level.WARNING: "yellow", Level.ERROR: "red"}


def findings_table(findings: Iterable[Finding]) -> Table:
    """Return one row for each finding, with its hint on a line of its own."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for one in findings:
        text = Text(f"{one.subject}: {one_line(one.message)}", overflow="fold")
        if one.hint:
            text.append("\nhint", style="bold").append(f": {one_line(one.hint)}")
        table.add_row(Text(one.level, style=STYLES[one.level]), text)
    return table


def conclusion(findings: Sequence[Finding]) -> Text:
    """Return the number of errors and warnings of one side, and whether evaluations or the training can begin."""
    errors, warnings = (sum(one.level is level for one in findings) for level in (Level.ERROR, Level.WARNING))
    counts = f"{count_text(errors, 'error')}, {count_text(warnings, 'warning')}"
    if all(one.side is FindingSide.TRAINING for one in findings):
        return Text(f"{counts}: {_training(errors, warnings)}", style=_style(errors, warnings))
    if errors:
        return Text(f"{counts}: evaluations would fail", style=_style(errors, warnings))
    begin = "evaluations can begin"
    if _is_empty(findings):
        begin = "no checkpoint can be evaluated yet"
    return Text(f"{counts}: {begin}", style=_style(errors, warnings))


def _training(errors: int, warnings: int) -> str:
    if errors:
        return "the training would stop"
    if warnings:
        return "the training may be slow or fail"
    return "the training can begin"


def _style(errors: int, warnings: int) -> str:
    if errors:
        return STYLES[Level.ERROR]
    return STYLES[Level.WARNING if warnings else Level.OK]


def _is_empty(findings: Sequence[Finding]) -> bool:
    """Return whether a warning says why there is no checkpoint, and no model was examined."""
    has_warning = any(one.subject == CHECKPOINTS and one.level is Level.WARNING for one in findings)
    return has_warning and all(one.subject != MODEL for one in findings)
