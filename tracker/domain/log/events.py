"""The log of a run: one event for each thing that changed what people see. Pure.

Structure is in the fields; `event_text` alone makes a sentence of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from eval_jobs.identity import content_hash
from eval_jobs.types import Checkpoint, EvalRecord
from tracker.domain.records.alerts import Alert, AlertState, alert_subject_text, subject_text
from tracker.domain.records.display import names_text, one_line, score_text, shortened, steps_text
from tracker.domain.records.imported import stands_for_import
from tracker.domain.records.losses import Acceptance
from tracker.domain.records.types import Gap, Report, VerdictWord

CHARS = 300
"""Length of a kept text, without the note on the characters that are left out."""
SHOWN_VERDICTS = 6


class EventKind(StrEnum):
    """What happened."""

    FOUND = "found"
    GAP = "gap"
    EVALUATED = "evaluated"
    REUSED = "reused"
    """Known results count for a checkpoint, of which nothing was asked."""
    CHANGED = "changed"
    """A verdict became another one without an evaluation of its checkpoint."""
    ALERT = "alert"
    CORRECTED = "corrected"
    """A firing alert says something else."""
    RESOLVED = "resolved"
    SETTING = "setting"
    ACCEPTED = "accepted"
    SILENCED = "silenced"
    UNSILENCED = "unsilenced"
    """A silence was ended before its time."""
    STARTED = "started"
    """A watcher."""
    STOPPED = "stopped"


@dataclass(frozen=True, kw_only=True)
class RunEvent:
    """One event. Its texts are single lines of bounded length."""

    number: int = 0
    """Change number: the later of two events of a database has the higher one; 0: not stored yet."""
    key: str
    """Hash of what happened: an event that is added twice is stored once."""
    run_id: str
    at: datetime
    kind: EventKind
    step: int | None = None
    """None: it is not about one checkpoint."""
    subject: str = ""
    """Benchmark, subject of an alert or a silence, or name of a setting."""
    before: str = ""
    after: str = ""
    reason: str = ""


def run_event(kind: EventKind, place: tuple[str, int | None, datetime], *identity: object, **texts: str) -> RunEvent:
    """Return an event at a run, step and time; `identity` makes it another one than others of its kind and step."""
    run_id, step, at = place
    key = content_hash([kind, run_id, step, *identity])
    short = {name: shortened(one_line(text), CHARS) for name, text in texts.items()}
    return RunEvent(number=0, key=key, run_id=run_id, at=at, kind=kind, step=step, **short)


def event_text(event: RunEvent) -> str:
    """Return the event as a sentence, without its kind, step and time."""
    if event.kind in (EventKind.ALERT, EventKind.CORRECTED, EventKind.RESOLVED):
        return event.after  # the message names the subject
    change = " → ".join(filter(None, (event.before, event.after)))
    text = ": ".join(filter(None, (event.subject, change)))
    if text and event.reason:
        return f"{text} ({event.reason})"
    return text or event.reason


def found(checkpoint: Checkpoint, now: datetime) -> RunEvent:
    """Return the event of a checkpoint that is complete and pinned."""
    place = checkpoint.run_id, checkpoint.step, now
    return run_event(EventKind.FOUND, place, checkpoint.digest, reason=checkpoint.source_uri)


def unevaluated(gap: Gap) -> RunEvent:
    """Return the event of a gap."""
    place, steps = (gap.run_id, gap.step, gap.seen_at), steps_text(gap.steps) if gap.count > 1 else ""
    return run_event(EventKind.GAP, place, gap.code, subject=steps, after=gap.message, reason=gap.code)


def evaluation_event(record: EvalRecord, report: Report) -> RunEvent:
    """Return the event of an evaluation, or of known results, with its most urgent verdicts."""
    verdicts = []
    for one in sorted((*report.verdicts, *report.findings), key=lambda one: list(VerdictWord).index(one.word)):
        name = subject_text(one.benchmark, one.subset, one.measure)
        if one.score is not None:
            name = f"{name} {score_text(one.score)}"
        verdicts.append(f"{name} {one.word}")
    text = names_text(verdicts or ["latency"], at_most=SHOWN_VERDICTS)  # of a load test alone there are no verdicts
    place = report.run_id, report.step, report.created_at
    return run_event(_kind_of(record), place, record.plan.id, record.finished_at, after=text)


def _kind_of(record: EvalRecord) -> EventKind:
    if record.cost is not None or record.started_at != record.finished_at:
        return EventKind.EVALUATED
    if stands_for_import(record.plan.checkpoint):
        return EventKind.EVALUATED
    return EventKind.REUSED


def verdict_changes(before: Report, after: Report, cause: RunEvent) -> Iterator[RunEvent]:
    """Yield the verdicts of one evaluation that became other ones; `cause`: another evaluation, or an acceptance."""
    place, known = (after.run_id, after.step, cause.at), {one.benchmark: one.word for one in before.verdicts}
    why = f"step {cause.step} was evaluated"
    if cause.kind is EventKind.ACCEPTED:
        why = f"{cause.subject} was accepted at step {cause.step}"
    for one in after.verdicts:
        texts = {"subject": one.benchmark, "before": known.get(one.benchmark, one.word), "after": one.word}
        if texts["before"] != one.word:
            yield run_event(EventKind.CHANGED, place, cause.key, after.plan_id, one.benchmark, **texts, reason=why)


def alert_events(alert: Alert, before: Alert | None) -> tuple[RunEvent, ...]:
    """Return the event of an alert that begins, says something else or ends after the last state of its cause."""
    old = new = ""
    if before is not None and before.state is AlertState.FIRING:
        old = before.message
    if alert.state is AlertState.FIRING:
        new = alert.message
    if new == old:
        return ()
    kind, place = EventKind.ALERT, (alert.run_id, alert.step, alert.raised_at)
    if old:
        kind = EventKind.CORRECTED if new else EventKind.RESOLVED
    texts = {"subject": alert_subject_text(alert.subject), "before": old, "after": alert.message}
    return (run_event(kind, place, alert.fingerprint, alert.raised_at, alert.message, **texts),)


def acceptance_event(acceptance: Acceptance) -> RunEvent:
    """Return the event of a level that a user accepted."""
    name, at = acceptance.benchmark, acceptance.accepted_at
    place, texts = (acceptance.run_id, acceptance.step, at), {"after": "new baseline", "reason": acceptance.reason}
    return run_event(EventKind.ACCEPTED, place, name, at, subject=name, **texts)
