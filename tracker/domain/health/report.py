"""What a log says, as commands print it. Pure."""

from dataclasses import dataclass

from tracker.domain.health.processes.pace import Replay
from tracker.domain.health.run_log import RunLog
from tracker.domain.health.run_state import StepsRead
from tracker.domain.health.series.loss import SeriesFinding
from tracker.domain.records.training import Severity, TrainingIncident, TroubleLine


@dataclass(frozen=True, kw_only=True)
class LogLine:
    """One line that shows trouble."""

    number: int
    """From 1."""
    name: str
    """Class of its rule."""
    text: str
    """Cleaned, on one line and of bounded length."""


@dataclass(frozen=True, kw_only=True)
class LogHit(LogLine):
    """One of all lines that show trouble."""

    severity: Severity
    incident: int
    """Number of the incident that it belongs to."""


@dataclass(frozen=True, kw_only=True)
class ReportedIncident:
    """Lines with one cause."""

    number: int
    """From 1."""
    name: str
    """Class of the cause."""
    title: str
    """The class in words; empty: its rule has none."""
    is_alert: bool
    """Whether it is worth an alert; else it is only shown."""
    is_over: bool
    """Whether the training made progress afterwards."""
    step: int | None
    """Last step before the cause; None: unknown."""
    lines: int
    """Lines that belong to it."""
    ranks: tuple[int, ...]
    """Ranks that printed them, where lines name one."""
    evidence: tuple[LogLine, ...]
    """The cause, then a line of each other class."""
    hint: str


@dataclass(frozen=True, kw_only=True)
class LogReport:
    """What one log says."""

    path: str
    lines: int
    """Number of lines; of rows in a log without text."""
    steps: StepsRead
    incidents: tuple[ReportedIncident, ...]
    hits: tuple[LogHit, ...]
    """In the order of the log."""
    findings: tuple[SeriesFinding, ...]
    """What the training loss shows."""
    pace: Replay | None = None
    """What the limits of hangs would have done; None: the log tells no times."""


def log_report(path: str, *, lines: int, log: RunLog, pace: Replay | None = None) -> LogReport:
    """Return what was read of a log of so many lines, with those hits that its reader kept."""
    hits, incidents = log.trouble.hits or (), log.incidents()
    ids = dict.fromkeys([*(incident for incident, _ in hits), *(one.id for one in incidents)])
    numbers = {incident: number for number, incident in enumerate(ids, start=1)}
    found = [_hit(line, numbers[incident]) for incident, line in hits]
    return LogReport(
        path=path,
        lines=lines,
        steps=log.steps,
        incidents=tuple(_incident(one, numbers[one.id]) for one in incidents),
        hits=tuple(sorted(found, key=lambda hit: hit.number)),
        findings=log.state.findings,
        pace=pace,
    )


def _hit(line: TroubleLine, incident: int) -> LogHit:
    trouble = line.trouble
    return LogHit(number=line.number, name=trouble.name, text=line.text, severity=trouble.severity, incident=incident)


def _incident(one: TrainingIncident, number: int) -> ReportedIncident:
    return ReportedIncident(
        number=number,
        name=one.name,
        title=one.cause.trouble.title,
        is_alert=one.is_alert,
        is_over=one.is_over,
        step=one.cause.step,
        lines=one.lines,
        ranks=one.ranks,
        evidence=tuple(_line(line) for line in one.evidence),
        hint=one.hint,
    )


def _line(line: TroubleLine) -> LogLine:
    return LogLine(number=line.number, name=line.trouble.name, text=line.text)
