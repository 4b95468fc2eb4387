"""What a log says, as commands print it. Pure."""

from dataclasses import dataclass

from tracker.domain.health.processes.pace import Replay
from tracker.domain.health.run_log import RunLog
from tracker.domain.health.run_state import StepsRead
from tracker.domain.health.series.loss import SeriesFinding
from tracker.domain.records.training import TrainingIncident, TroubleLine


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
class ReportedIncident:
    """Lines with one cause."""

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
    """That printed them, where lines name one."""
    evidence: tuple[LogLine, ...]
    """The cause, then a line of each other class."""
    hint: str


@dataclass(frozen=True, kw_only=True)
class LogReport:
    """What one log says."""

    path: str
    lines: int
    steps: StepsRead
    incidents: tuple[ReportedIncident, ...]
    findings: tuple[SeriesFinding, ...]
    """What the training loss shows."""
    pace: Replay | None = None
    """What the limits of hangs would have done; None: the log tells no times."""


def log_report(path: str, log: RunLog, pace: Replay | None = None) -> LogReport:
    """Return what was read of a log."""
    return LogReport(
        path=path,
        lines=log.lines,
        steps=log.steps,
        incidents=tuple(_incident(one) for one in log.incidents()),
        findings=log.findings,
        pace=pace,
    )


def _incident(one: TrainingIncident) -> ReportedIncident:
    return ReportedIncident(
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
