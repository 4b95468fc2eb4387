"""What a log says, as commands print it. Pure."""

from dataclasses import dataclass

from tracker.domain.health.incidents import LogIncident, LogReader, PlacedHit, StepsRead
from tracker.domain.health.loss_series import SeriesFinding
from tracker.domain.records.display import one_line, shortened

TEXT_CHARS = 300


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


def log_report(path: str, log: LogReader) -> LogReport:
    """Return what was read of a log."""
    return LogReport(
        path=path,
        lines=log.lines,
        steps=log.steps,
        incidents=tuple(_incident(one) for one in log.incidents),
        findings=log.findings,
    )


def _incident(one: LogIncident) -> ReportedIncident:
    return ReportedIncident(
        name=one.rule.name,
        is_alert=one.is_alert,
        is_over=one.is_over,
        step=one.cause.step,
        lines=len(one.hits),
        ranks=one.ranks,
        evidence=tuple(_line(placed) for placed in one.evidence),
        hint=one.rule.hint,
    )


def _line(placed: PlacedHit) -> LogLine:
    text = shortened(one_line(placed.hit.line), TEXT_CHARS)
    return LogLine(number=placed.number, name=placed.hit.rule.name, text=text)
