"""The log of a run: one event for each thing that changed what people see. Pure.

Structure is in the fields; `event_text` alone makes a sentence of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from eval_jobs.identity import content_hash
from eval_jobs.types import Checkpoint, EvalRecord
from tracker.domain.records.alerts import Alert, AlertState, Silence
from tracker.domain.records.display import names_text, one_line, score_text, shortened, steps_text
from tracker.domain.records.subjects import alert_subject_text, silenced_text, subject_text
from tracker.domain.records.types import Acceptance, Gap, Report, VerdictWord

CHARS = 300
"""Characters of a text that an event keeps, apart from the note on those left out."""
SHOWN_VERDICTS = 6


class EventKind(StrEnum):
    """What happened."""

    FOUND = "found"
    GAP = "gap"
    EVALUATED = "evaluated"
    CHANGED = "changed"
    """A verdict of an earlier evaluation became another one."""
    ALERT = "alert"
    CORRECTED = "corrected"
    """A firing alert says something else."""
    RESOLVED = "resolved"
    SETTING = "setting"
    ACCEPTED = "accepted"
    SILENCED = "silenced"
    STARTED = "started"
    """A process began to watch."""
    STOPPED = "stopped"


@dataclass(frozen=True, kw_only=True)
class RunEvent:
    """One event. Its texts are single lines of bounded length."""

    number: int = 0
    """Change number: of two events of a database, the later one has the higher; 0: not stored yet."""
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


def run_event(
    kind: EventKind, place: tuple[str, int | None, datetime], identity: Sequence[object], **texts: str
) -> RunEvent:
    """Return an event at a run, step and time; `identity` makes it another one than others of its kind and place."""
    run_id, step, at = place
    short = {name: shortened(one_line(text), CHARS) for name, text in texts.items()}
    key = content_hash([kind, run_id, step, *identity])
    return RunEvent(number=0, key=key, run_id=run_id, at=at, kind=kind, step=step, **short)


def event_text(event: RunEvent) -> str:
    """Return the event as a sentence, without its kind, step and time."""
    if event.kind in (EventKind.ALERT, EventKind.RESOLVED):  # the message names the subject
        return event.after
    if event.kind is EventKind.CORRECTED:
        return f"{event.after} (before: {event.before})"
    change = " → ".join(filter(None, (event.before, event.after)))
    said = ": ".join(filter(None, (event.subject, change)))
    return f"{said} ({event.reason})" if said and event.reason else said or event.reason


def found(checkpoint: Checkpoint, now: datetime) -> RunEvent:
    """Return the event of a checkpoint that is complete and pinned."""
    place = checkpoint.run_id, checkpoint.step, now
    return run_event(EventKind.FOUND, place, [checkpoint.digest], reason=checkpoint.source_uri)


def unevaluated(gap: Gap) -> RunEvent:
    """Return the event of a gap."""
    which = steps_text(gap.steps) if gap.count > 1 else ""
    place = gap.run_id, gap.step, gap.seen_at
    return run_event(EventKind.GAP, place, [gap.code], subject=which, after=gap.message, reason=gap.code)


def evaluated(record: EvalRecord, report: Report) -> RunEvent:
    """Return the event of an evaluation, with its most urgent verdicts."""
    verdicts = sorted((*report.verdicts, *report.findings), key=lambda one: list(VerdictWord).index(one.word))
    said = []
    for verdict in verdicts:
        score = "" if verdict.score is None else f"{score_text(verdict.score)} "
        said.append(f"{subject_text(verdict.benchmark, verdict.subset, verdict.measure)} {score}{verdict.word}")
    text = names_text(said, at_most=SHOWN_VERDICTS) if said else ""
    place = report.run_id, report.step, report.created_at
    return run_event(EventKind.EVALUATED, place, [record.plan.id, record.finished_at], after=text)


def verdict_changes(before: Report, after: Report, cause: RunEvent) -> Iterator[RunEvent]:
    """Yield the verdicts of one evaluation that became other ones; `cause`: an evaluation or acceptance."""
    known = {verdict.benchmark: verdict.word for verdict in before.verdicts}
    why = f"step {cause.step} was evaluated"
    if cause.kind is EventKind.ACCEPTED:
        why = f"{cause.subject} was accepted at step {cause.step}"
    for verdict in after.verdicts:
        name, word = verdict.benchmark, known.get(verdict.benchmark)
        if word is not None and word is not verdict.word:
            place, identity = (after.run_id, after.step, cause.at), [cause.key, after.plan_id, name]
            texts = {"before": word, "after": verdict.word, "reason": why}
            yield run_event(EventKind.CHANGED, place, identity, subject=name, **texts)


def alert_events(alert: Alert, before: Alert | None) -> tuple[RunEvent, ...]:
    """Return what an alert changes after the last state of its cause: it begins, says something else, ends, or ()."""
    said = before.message if before is not None and before.state is AlertState.FIRING else ""
    if alert.state is AlertState.RESOLVED:
        kind, is_known = EventKind.RESOLVED, not said
    else:
        kind, is_known = EventKind.CORRECTED if said else EventKind.ALERT, said == alert.message
    if is_known:
        return ()
    place, identity = (alert.run_id, alert.step, alert.raised_at), [alert.fingerprint, alert.raised_at, alert.message]
    texts = {"before": said if kind is EventKind.CORRECTED else "", "after": alert.message}
    return (run_event(kind, place, identity, subject=alert_subject_text(alert.subject), **texts),)


def accepted(acceptance: Acceptance) -> RunEvent:
    """Return the event of a level that a user accepted."""
    place = acceptance.run_id, acceptance.step, acceptance.accepted_at
    texts = {"after": "new baseline", "reason": acceptance.reason}
    return run_event(EventKind.ACCEPTED, place, [acceptance.benchmark, place[2]], subject=acceptance.benchmark, **texts)


def silenced(silence: Silence) -> RunEvent:
    """Return the event of a silence that begins, or that a user ends."""
    lasts = silence.ends_at > silence.begins_at
    until = f"until {silence.ends_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if lasts else "no longer silenced"
    place, identity = (silence.run_id, None, silence.begins_at), [silence.id, silence.begins_at]
    texts = {"after": until, "reason": silence.reason}
    return run_event(EventKind.SILENCED, place, identity, subject=silenced_text(silence), **texts)
