"""One result of a check before evaluation or training, and what follows from all of them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from eval_jobs.errors import ConfigError, ExitCode, TrackerError


class Level(StrEnum):
    """How a finding affects evaluations, or a training."""

    OK = "ok"
    INFO = "info"
    """What may help to know; nothing follows from it."""
    WARNING = "warning"
    """Evaluations work, but something is missing or will be wrong later. A training may be slow or fail."""
    ERROR = "error"
    """Every evaluation, or every answer of a benchmark, would fail. A training would stop."""


class FindingSide(StrEnum):
    """What a finding affects."""

    EVALUATION = "evaluation"
    TRAINING = "training"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One checked subject."""

    subject: str
    """Such as `engine` or `benchmark gsm8k`."""
    level: Level
    message: str
    hint: str = ""
    """What to do. Empty: nothing."""
    side: FindingSide = FindingSide.EVALUATION

    def __str__(self) -> str:
        return f"{self.subject}: {self.message}" + (f" (hint: {self.hint})" if self.hint else "")


def ok(subject: str, message: str, hint: str = "") -> Finding:
    """Return a finding that needs no action."""
    return Finding(subject=subject, level=Level.OK, message=message, hint=hint)


def info(subject: str, message: str, hint: str = "") -> Finding:
    """Return a finding from which nothing follows."""
    return Finding(subject=subject, level=Level.INFO, message=message, hint=hint)


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


def of_training(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings as those about a training."""
    return tuple(replace(one, side=FindingSide.TRAINING) for one in findings)


def exit_code(findings: Iterable[Finding]) -> int:
    """Return the exit code of `tracker doctor`.

    2: evaluations would fail; 1: a training would stop; 3: a training may be slow or fail; 0: none of these.
    """
    found = {(one.side, one.level) for one in findings}
    if (FindingSide.EVALUATION, Level.ERROR) in found:
        return ExitCode.USAGE
    if (FindingSide.TRAINING, Level.ERROR) in found:
        return ExitCode.REGRESSION
    if (FindingSide.TRAINING, Level.WARNING) in found:
        return ExitCode.UNKNOWN
    return ExitCode.OK


def demand_ready(findings: Iterable[Finding]) -> None:
    """Raise ConfigError with all findings that would make evaluations fail; its hint is the first one's."""
    found = errors_in(findings)
    if not found:
        return
    more = " (`tracker doctor` shows all)" if len(found) > 1 else ""
    raise ConfigError("; ".join(f"{one.subject}: {one.message}" for one in found), hint=f"{found[0].hint}{more}")
