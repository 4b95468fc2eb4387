"""One result of a check before evaluation, and what follows from all of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from eval_jobs.errors import ConfigError, TrackerError


class Level(StrEnum):
    """How a finding affects evaluations."""

    OK = "ok"
    WARNING = "warning"
    """Evaluations work, but something is missing or will be wrong later."""
    ERROR = "error"
    """Every evaluation, or every answer of a benchmark, would fail."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One checked subject."""

    subject: str
    """Such as `engine` or `benchmark gsm8k`."""
    level: Level
    message: str
    hint: str = ""
    """What to do. Empty: nothing."""


def ok(subject: str, message: str) -> Finding:
    """Return a finding that needs no action."""
    return Finding(subject=subject, level=Level.OK, message=message)


def warning(subject: str, message: str, hint: str) -> Finding:
    """Return a finding that does not stop evaluations."""
    return Finding(subject=subject, level=Level.WARNING, message=message, hint=hint)


def error(subject: str, message: str, hint: str) -> Finding:
    """Return a finding that would make evaluations fail."""
    return Finding(subject=subject, level=Level.ERROR, message=message, hint=hint)


def finding_of(subject: str, failure: TrackerError, level: Level = Level.ERROR) -> Finding:
    """Return the finding for an error that a check raised."""
    return Finding(subject=subject, level=level, message=failure.message, hint=failure.hint)


def errors_in(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings that would make evaluations fail."""
    return tuple(one for one in findings if one.level is Level.ERROR)


def demand_ready(findings: Iterable[Finding]) -> None:
    """Raise ConfigError with all findings that would make evaluations fail; its hint is the first one's."""
    found = errors_in(findings)
    if not found:
        return
    more = " (`tracker doctor` shows all)" if len(found) > 1 else ""
    raise ConfigError("; ".join(f"{one.subject}: {one.message}" for one in found), hint=f"{found[0].hint}{more}")
