"""Incidents of a training -> terminal output. Pure."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from tracker.cli.tables.render import number_columns, plain_table
from tracker.domain.alerts.training import incident_text, state_text
from tracker.domain.health.failures import Failures
from tracker.domain.health.stored import RunProgress
from tracker.domain.records.display import clean_lines, count_text, duration_text, one_line
from tracker.domain.records.training import TrainingIncident, TroubleSource


def incidents_table(incidents: Sequence[TrainingIncident]) -> Table:
    """Return a row for each incident, in the order of time."""
    table = plain_table(
        Column("id", no_wrap=True),
        Column("run", overflow="fold"),
        *number_columns("step"),
        Column("since (UTC)", no_wrap=True),
        Column("what", overflow="fold"),
        Column("state", overflow="fold"),
    )
    for one in incidents:
        step = "" if one.cause.step is None else str(one.cause.step)
        what = Text(one_line(incident_text(one)), style="bold red" if one.is_alert and not one.is_over else "")
        table.add_row(one.id, Text(one.run_id), step, f"{one.seen_at:%m-%d %H:%M}", what, Text(state_text(one)))
    return table


def failures_text(failures: Failures, *, hidden: int) -> Text:
    """Return what all incidents cost, on one line; `hidden`: number of those that the table leaves out."""
    parts = []
    if failures.failures:
        parts.append(count_text(failures.failures, "failure"))
    if failures.lost_steps:
        parts.append(f"{count_text(failures.lost_steps, 'step')} lost")
    if failures.hours_between is not None:
        parts.append(f"{duration_text(failures.hours_between * 3600)} between failures")
    if hidden:
        parts.append(f"{count_text(hidden, 'more incident')} with --all")
    return Text(", ".join(parts), style="dim")


def classes_text(failures: Failures) -> Text:
    """Return how many incidents of each class there are, on one line: `3 oom (1 open), 2 network`."""
    parts = []
    for one in failures.classes:
        lasting = f" ({one.open} open)" if one.open else ""
        parts.append(f"{one.incidents} {one_line(one.name)}{lasting}")
    return Text(", ".join(parts), style="dim")


def run_failures_text(run: str, failures: Failures) -> Text:
    """Return `sft: 2 oom (1 open), 1 network; 2 failures, 140 steps lost`."""
    parts = [one for one in (classes_text(failures), failures_text(failures, hidden=0)) if one]
    return Text(f"{one_line(run)}: {'; '.join(map(str, parts))}", style="dim")


def standing_text(progress: RunProgress) -> Text:
    """Return `sft: evaluating, step 300, logs steps every 8.0 s (11-27 17:19 UTC)`: when its logs had anything new."""
    parts = [f"{one_line(progress.run_id)}: {progress.state}"]
    if progress.last_step is not None:
        parts.append(f"step {progress.last_step}")
    if progress.usual_s is not None:
        parts.append(f"logs steps every {duration_text(progress.usual_s)}")
    return Text(f"{', '.join(parts)} ({progress.read_at:%m-%d %H:%M} UTC)", style="dim")


def incident_view(incident: TrainingIncident) -> RenderableType:
    """Return everything that is known of an incident."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    for label, text in _facts(incident):
        grid.add_row(Text(label, "bold"), Text(text, overflow="fold"))
    parts: list[RenderableType] = [grid]
    lines = [f"{line.stream}:{line.number}: {line.text}" for line in incident.evidence if line.number]
    parts += _lines("lines", lines, style="")
    parts += _lines("before them" if lines else "last lines", incident.context)
    parts += _lines("processes", clean_lines(incident.capture))
    return Group(*parts)


def _lines(label: str, lines: Sequence[str], style: str = "dim") -> list[Text]:
    if not lines:
        return []
    return [Text(label, "bold"), *(Text(f"  {line}", style) for line in lines)]


def _facts(incident: TrainingIncident) -> Iterator[tuple[str, str]]:
    yield "what", incident_text(incident)
    yield "class", incident.name
    yield "run", incident.run_id
    yield "since", f"{incident.seen_at:%Y-%m-%d %H:%M:%S} UTC"
    yield "state", state_text(incident)
    if incident.lines:
        yield "lines", f"{incident.lines:,}"
    if incident.cause.trouble.source is TroubleSource.SERIES:
        yield "numbers", incident.cause.text
    elif not incident.cause.number:
        yield "found" if incident.cause.is_proven else "likely", incident.cause.text
    if incident.hint:
        yield "hint", incident.hint
    if incident.cause.trouble.command:
        yield "next", incident.cause.trouble.command
