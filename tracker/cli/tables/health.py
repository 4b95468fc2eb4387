"""What a trainer's log says -> terminal output. Pure."""

import math
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from tracker.cli.tables.render import number_columns, plain_table
from tracker.domain.health.processes.pace import Replay
from tracker.domain.health.report import LogHit, LogReport, ReportedIncident
from tracker.domain.health.run_state import StepsRead
from tracker.domain.health.series.loss import SeriesFinding
from tracker.domain.health.series_incidents import title_and_hint
from tracker.domain.records.display import count_text, duration_text, one_line, score_text

_SHOWN_RANKS = 8
_SHOWN_HITS = 50


def log_table(report: LogReport) -> RenderableType:
    """Return the incidents of a log, and what its lines of steps say."""
    head = Text.assemble(
        (one_line(report.path), "bold"), f": {count_text(report.lines, 'line')}, {_steps(report.steps)}"
    )
    parts: list[RenderableType] = [head]
    parts += [_incident(one) for one in report.incidents]
    parts += [_finding(one) for one in report.findings]
    if not (report.incidents or report.findings):
        parts.append(Text("  no incident", "green"))
    if report.hits:
        parts.append(_hits(report.hits[:_SHOWN_HITS]))
    if len(report.hits) > _SHOWN_HITS:
        hidden = count_text(len(report.hits) - _SHOWN_HITS, "more hit")
        parts.append(Text(f"  {hidden}: --json has all", "dim"))
    if report.pace is not None:
        parts.append(Text(f"  {_pace(report.pace)}", "dim"))
    return Group(*parts)


def _steps(steps: StepsRead) -> str:
    if steps.lines:
        until = "" if steps.first == steps.last else f" to {steps.last}"
        text = f"{count_text(steps.lines, 'line')} of step{'s' if until else ''} {steps.first}{until}"
    elif steps.unnumbered:
        text = f"{steps.unnumbered:,} losses without a step"
    else:
        return "no step"
    if steps.first_loss is None or steps.last_loss is None:
        return text
    return f"{text}, loss {_number(steps.first_loss)} → {_number(steps.last_loss)}"


def _number(value: float | None) -> str:
    return score_text(value) if value is None or math.isfinite(value) else str(value)


def _pace(pace: Replay) -> str:
    hangs = count_text(pace.reports, "hang") if pace.reports else "no hang"
    usual, longest = duration_text(pace.usual_s), duration_text(pace.longest_pause_s)
    looks = count_text(pace.looks, "look")
    return f"{hangs} in {pace.hours:.1f} h: steps logged every {usual}, longest pause {longest}, {looks}"


def _incident(one: ReportedIncident) -> Table:
    grid = Table.grid(padding=(0, 1, 0, 0))
    style = "bold red" if one.is_alert else "yellow"
    title = Text.assemble((one.name, style), f" {one.title} ".replace("  ", " "), *_facts(one))
    grid.add_row(str(one.number), title)
    cause = one.evidence[0]
    grid.add_row("", Text(f"line {cause.number}: {cause.text}", overflow="fold"))
    if one.hint:
        grid.add_row("", Text.assemble(("hint", "bold"), f": {one.hint}"))
    return grid


def _hits(hits: Sequence[LogHit]) -> Table:
    table = plain_table(
        *number_columns("line"),
        Column("class", no_wrap=True),
        Column("severity", no_wrap=True),
        *number_columns("incident"),
        Column("text", overflow="fold"),
    )
    for hit in hits:
        number = str(hit.number) if hit.number else ""
        table.add_row(number, Text(hit.name), hit.severity, str(hit.incident), Text(hit.text))
    return table


def _finding(one: SeriesFinding) -> Text:
    place = "step" if one.is_numbered else "loss number"
    over = "lasts" if one.over_step is None else f"back at {place} {one.over_step}"
    values = f"{one.key} {_number(one.expected)} → {_number(one.worst)}"
    more = "" if one.is_alert else ", no alert"
    style = "bold red" if one.is_alert else "yellow"
    title, hint = title_and_hint(one.name)
    facts = f" {title} ({place} {one.onset_step}, {values}, {over}{more})".replace("  ", " ")
    text = Text.assemble("  ", (one_line(one.name), style), facts)
    return text.append("\n  hint", "bold").append(f": {hint}", "not bold") if hint else text


def _ranks(ranks: Sequence[int]) -> str:
    if len(ranks) > _SHOWN_RANKS:
        return f"{len(ranks)} ranks"
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _facts(one: ReportedIncident) -> Iterator[str]:
    facts = [count_text(one.lines, "line")]
    if one.step is not None:
        facts.append(f"step {one.step}")
    if one.ranks:
        facts.append(_ranks(one.ranks))
    if not one.is_alert:
        facts.append("no alert")
    if one.is_over:
        facts.append("training continued")
    yield f"({', '.join(facts)})"
