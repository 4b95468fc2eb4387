"""Alerts for tests."""

from datetime import UTC, datetime

from tracker.domain.records.alerts import Alert, AlertKind, AlertState, AlertSubject, SubjectKind

RUN = "run"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def alert(subject: str = "sums", step: int = 100, state: AlertState = AlertState.FIRING, *, run_id: str = RUN) -> Alert:
    """Return an alert whose cause is known by its run and subject."""
    return Alert(
        fingerprint=f"{run_id} {subject}",
        run_id=run_id,
        step=step,
        kind=AlertKind.LOSS,
        subject=AlertSubject(kind=SubjectKind.BENCHMARK, name=subject),
        state=state,
        message=f"{subject} at step {step}",
        raised_at=NOW,
    )


def end_of(subject: str = "sums", step: int = 200, *, run_id: str = RUN) -> Alert:
    """Return the end of `alert(subject)`."""
    return alert(subject, step, AlertState.RESOLVED, run_id=run_id)
