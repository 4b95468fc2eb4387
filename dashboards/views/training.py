"""What the trainer's logs say of a run: incidents, steps lost, productive time. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from dashboards.data.run import Training
from tracker.domain.alerts.training import incident_text, state_text
from tracker.domain.health.failures import failures_of, is_failure, lost_steps
from tracker.domain.health.stored import RunProgress
from tracker.domain.records.display import count_text, duration_text, one_line
from tracker.domain.records.training import TrainingIncident


@dataclass(frozen=True, kw_only=True)
class IncidentRow:
    """One incident of the training."""

    step: str
    since: str
    what: str
    """In words, with its ranks."""
    line: str
    """The line, or the numbers, that show it."""
    hint: str
    state: str
    lasts: bool
    lost: str
    """Steps since the newest checkpoint before it; empty: it did not end the training."""


@dataclass(frozen=True, kw_only=True)
class TrainingView:
    """The section on the training."""

    facts: tuple[str, ...]
    incidents: tuple[IncidentRow, ...]
    """Lasting ones first, newest first."""


def training_view(training: Training) -> TrainingView | None:
    """Return the section; None: no log was read."""
    if training.progress is None:
        return None
    rows = sorted(training.incidents, key=lambda one: (_lasts(one), one.seen_at), reverse=True)
    return TrainingView(facts=tuple(_facts(training)), incidents=tuple(_row(one, training) for one in rows))


def since_last_text(training: Training, step: int) -> tuple[str, ...]:
    """Return what happened between a checkpoint and the one before it, as texts."""
    before = max((known for known in training.checkpoints if known < step), default=-1)
    found = [one for one in training.incidents if one.cause.step is not None and before < one.cause.step <= step]
    return tuple(one_line(incident_text(one)) for one in found)


def _facts(training: Training) -> Iterator[str]:
    if training.progress is not None:
        yield from _standing(training.progress)
    failures = failures_of(training.incidents, training.checkpoints)
    if failures.failures:
        lost = f", {count_text(failures.lost_steps, 'step')} lost" if failures.lost_steps else ""
        yield f"{count_text(failures.failures, 'failure')}{lost}"
    if failures.hours_between is not None:
        yield f"{duration_text(failures.hours_between * 3600)} between failures"


def _standing(progress: RunProgress) -> Iterator[str]:
    if progress.state:
        yield progress.state
    if progress.last_step is not None:
        yield f"step {progress.last_step}"
    if progress.usual_s is not None:
        yield f"logs steps every {duration_text(progress.usual_s)}"
    if progress.productive_share is not None:
        yield f"productive time {progress.productive_share:.0%}"
    for name, value in progress.summary.items():
        yield f"{one_line(name)} {value:.4g}"


def _lasts(one: TrainingIncident) -> bool:
    return not (one.is_over or one.is_history)


def _row(one: TrainingIncident, training: Training) -> IncidentRow:
    cause = one.cause
    return IncidentRow(
        step="" if cause.step is None else str(cause.step),
        since=f"{one.seen_at:%Y-%m-%d %H:%M} UTC",
        what=one_line(incident_text(one)),
        line=one_line(cause.text),
        hint=one_line(one.hint),
        state=one_line(state_text(one)),
        lasts=_lasts(one),
        lost=str(lost_steps(one, training.checkpoints)) if is_failure(one) and cause.step is not None else "",
    )
