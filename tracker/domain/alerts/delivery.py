"""What a channel sends next: in order, grouped by checkpoint, respecting silences. `pace` decides when. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from urllib.parse import quote

from eval_jobs.records.run_scope import is_of
from tracker.domain.alerts.evidence import corrects
from tracker.domain.records.alerts import Alert, AlertMessage, AlertState, ChannelState, Silence


class DeliveryStatus(StrEnum):
    """Why an alert waits."""

    WAITING = "waiting"
    """Not tried yet; also the status of an alert that was sent."""
    SILENCED = "silenced"
    """A silence holds it back."""
    BEHIND = "behind"
    """Its cause has older news that cannot be sent yet."""
    FAILED = "failed"
    """Sending failed and is retried."""


BY_SILENCE = frozenset({DeliveryStatus.SILENCED, DeliveryStatus.BEHIND})


@dataclass(frozen=True, kw_only=True)
class QueuedAlert:
    """An alert that is queued for one channel."""

    id: int
    """Ascending in the order in which alerts were raised."""
    alert: Alert
    attempts: int
    retry_at_s: float
    """POSIX time before which it is not sent."""
    status: DeliveryStatus


@dataclass(frozen=True, kw_only=True)
class DeliveryTurn:
    """What happens to all alerts that wait for one channel, in one round."""

    groups: tuple[tuple[QueuedAlert, ...], ...]
    """Alerts of one message each, in order."""
    put_off: Mapping[int, tuple[float, DeliveryStatus]]
    """Ids of alerts that wait -> POSIX time of the next check, and why they wait."""
    dropped: tuple[int, ...]
    """Ids of alerts that began and ended while silenced: they are not sent."""


Delivery = tuple[DeliveryStatus, str]
"""Why an alert waits, and the last error of its channel; empty: none."""


def channel_state(name: str, waiting: Sequence[Delivery], *, is_configured: bool) -> ChannelState:
    """Return the state of a channel whose waiting alerts are `waiting`, oldest first."""
    own = [last_error for status, last_error in waiting if status not in BY_SILENCE]
    return ChannelState(
        name=name,
        is_configured=is_configured,
        waiting=len(waiting),
        is_silenced=bool(waiting) and not own,
        last_error=own[0] if own else "",
    )


def is_news(alert: Alert, last: AlertState | None, known: Alert | None = None) -> bool:
    """Return whether a channel must send an alert: the end of what it never sent is not news.

    `last` is the state in which it was last queued for the channel; None: never. `known` is what was queued then; only
    a correction needs it.
    """
    if alert.state is not (last or AlertState.RESOLVED):
        return True
    return known is not None and corrects(alert, known)


def next_turn(queued: Sequence[QueuedAlert], silences: Iterable[Silence], now: datetime) -> DeliveryTurn:
    """Return what happens to `queued`: all alerts that wait for one channel, oldest first.

    A silence does not hold back the end of an alert that was sent before it.
    """
    due, behind = _deliverable(queued, now.timestamp())
    put_off = {id_: (until_s, DeliveryStatus.BEHIND) for id_, until_s in behind.items()}
    audible: list[QueuedAlert] = []
    lasting = [silence for silence in silences if silence.begins_at <= now < silence.ends_at]
    held = set[str]()
    for one in due:
        cause = one.alert.fingerprint
        ends = [silence.ends_at for silence in lasting if _is_meant(one.alert, silence)]
        if ends and (one.alert.state is AlertState.FIRING or cause in held):
            held.add(cause)
            put_off[one.id] = (max(ends).timestamp(), DeliveryStatus.SILENCED)
        else:
            audible.append(one)
    news, dropped = _without_pairs(audible)
    return DeliveryTurn(groups=by_checkpoint(news), put_off=put_off, dropped=dropped)


def without_causes(group: Sequence[QueuedAlert], refused: Set[str]) -> tuple[QueuedAlert, ...]:
    """Return the alerts of a group that may be sent: none of a cause in `refused`, so that its news stays in order."""
    return tuple(one for one in group if one.alert.fingerprint not in refused)


def by_checkpoint(queued: Iterable[QueuedAlert]) -> tuple[tuple[QueuedAlert, ...], ...]:
    """Return the alerts of one message each: all of one checkpoint or cause, in the order of its first alert.

    A checkpoint gets a second message if the first one would send news of a cause before older news of it.
    """
    groups: list[list[QueuedAlert]] = []
    of_checkpoint: dict[tuple[str, int | None, str], int] = {}
    of_cause: dict[str, int] = {}
    for one in queued:
        step, cause = one.alert.step, one.alert.fingerprint
        checkpoint = (one.alert.run_id, step, cause if step is None else "")
        index = of_checkpoint.get(checkpoint, -1)
        if index < of_cause.get(cause, 0):
            index = of_checkpoint[checkpoint] = len(groups)
            groups.append([])
        groups[index].append(one)
        of_cause[cause] = index
    return tuple(tuple(group) for group in groups)


def message_of(group: Sequence[QueuedAlert], link: str) -> AlertMessage:
    """Return the message of alerts of one checkpoint, oldest first; it contains the newest alert of each cause.

    In the URL `link`, {run} and {step} are replaced; empty: none.
    """
    newest = {one.alert.fingerprint: one.alert for one in group}
    alerts = sorted(newest.values(), key=lambda alert: alert.state is not AlertState.FIRING)
    run_id, step = alerts[0].run_id, alerts[0].step
    where = link.replace("{run}", quote(run_id, safe="")).replace("{step}", str(step))
    return AlertMessage(run_id=run_id, step=step, alerts=tuple(alerts), link=where)


def _deliverable(queued: Sequence[QueuedAlert], now_s: float) -> tuple[tuple[QueuedAlert, ...], dict[int, float]]:
    """Return what may be sent now, and by id until when the other due alerts wait for an older one of their cause."""
    due: list[QueuedAlert] = []
    behind: dict[int, float] = {}
    until_s: dict[str, float] = {}
    for one in queued:
        cause = one.alert.fingerprint
        if one.retry_at_s > now_s:
            until_s[cause] = max(one.retry_at_s, until_s.get(cause, 0.0))
        elif cause in until_s:
            behind[one.id] = until_s[cause]
        else:
            due.append(one)
    return tuple(due), behind


def _without_pairs(queued: Sequence[QueuedAlert]) -> tuple[tuple[QueuedAlert, ...], tuple[int, ...]]:
    """Return what must be sent, and the ids of what must not: it began and ended while silenced.

    A correction corrects an alert that was sent before, whose end must be sent.
    """
    dropped: set[int] = set()
    begun: dict[str, list[QueuedAlert]] = {}
    silenced: set[str] = set()
    for one in queued:
        cause = one.alert.fingerprint
        if one.alert.state is AlertState.FIRING:
            begun.setdefault(cause, []).append(one)
            if one.status is DeliveryStatus.SILENCED:
                silenced.add(cause)
            elif one.status is not DeliveryStatus.BEHIND:
                silenced.discard(cause)
        else:
            firing = begun.pop(cause, [])
            if firing and cause in silenced:
                dropped.update(_never_sent(firing, one))
    return tuple(one for one in queued if one.id not in dropped), tuple(sorted(dropped))


def _never_sent(firing: Sequence[QueuedAlert], end: QueuedAlert) -> Iterator[int]:
    for one in firing:
        yield one.id
    if not firing[0].alert.is_correction:
        yield end.id


def _is_meant(alert: Alert, silence: Silence) -> bool:
    subject = alert.subject
    is_named = _fits(subject.name, silence.name) and _fits(subject.subset, silence.subset)
    return is_of(alert.run_id, silence.run_id) and subject.kind is silence.kind and is_named


def _fits(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)  # a name may contain pattern characters
