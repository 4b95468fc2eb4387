"""What a channel is told next: in order, grouped by checkpoint, silences kept, failures waited for. Pure.

due, behind = in_order(waiting, now_s)       # nobody hears of an end before its beginning
told, dropped = without_pairs(due)           # begun and over while it was silenced: nobody needs to know
for group in by_checkpoint(told):
    message = message_of(group, link)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from urllib.parse import quote

from eval_jobs.backoff import Backoff
from tracker.domain.records.alerts import Alert, AlertMessage, AlertState, Silence

SILENCED = "silenced"
"""Trouble of an alert that a silence holds back."""

BEHIND = "waits for what is told before it"
"""Trouble of an alert whose cause has older news that cannot be told yet."""

BACKOFF = Backoff(first_s=5.0, longest_s=300.0)


@dataclass(frozen=True, kw_only=True)
class QueuedAlert:
    """An alert on its way to one channel."""

    id: int
    """Ascending in the order in which alerts were raised."""
    alert: Alert
    attempts: int
    retry_at_s: float
    """POSIX time before which it is not tried."""
    trouble: str
    """Why it was not delivered yet; empty: nobody has tried."""


def silence_of(alert: Alert, silences: Iterable[Silence], now: datetime) -> Silence | None:
    """Return the silence that holds the alert back now, the one that ends last, or None."""
    found = [s for s in silences if s.begins_at <= now < s.ends_at and _is_meant(alert, s)]
    return max(found, key=lambda s: s.ends_at, default=None)


def in_order(queued: Sequence[QueuedAlert], now_s: float) -> tuple[tuple[QueuedAlert, ...], dict[int, float]]:
    """Return what may be tried now, and until when those wait that are due but have one of their cause before them.

    Args:
        queued: all that waits for one channel, oldest first.
        now_s: POSIX time.
    """
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


def without_pairs(queued: Sequence[QueuedAlert]) -> tuple[tuple[QueuedAlert, ...], tuple[int, ...]]:
    """Return what is to be told, and the ids of what is not: it began and ended while it was silenced."""
    dropped: set[int] = set()
    begun: dict[str, QueuedAlert] = {}
    silenced: set[str] = set()
    for one in queued:
        cause = one.alert.fingerprint
        if one.alert.state is AlertState.FIRING:
            begun[cause] = one
            if one.trouble == SILENCED:
                silenced.add(cause)
            elif one.trouble != BEHIND:
                silenced.discard(cause)
        elif (first := begun.pop(cause, None)) is not None and cause in silenced:
            dropped |= {first.id, one.id}
    return tuple(one for one in queued if one.id not in dropped), tuple(sorted(dropped))


def by_checkpoint(queued: Iterable[QueuedAlert]) -> tuple[tuple[QueuedAlert, ...], ...]:
    """Return what goes into one message each: all of one checkpoint, in the order of its first alert.

    A checkpoint has a second message where the first one would tell a cause's news before older ones of it.
    """
    groups: list[list[QueuedAlert]] = []
    of_checkpoint: dict[tuple[str, int], int] = {}
    of_cause: dict[str, int] = {}
    for one in queued:
        checkpoint, cause = (one.alert.run_id, one.alert.step), one.alert.fingerprint
        index = of_checkpoint.get(checkpoint, -1)
        if index < of_cause.get(cause, 0):
            index = of_checkpoint[checkpoint] = len(groups)
            groups.append([])
        groups[index].append(one)
        of_cause[cause] = index
    return tuple(tuple(group) for group in groups)


def message_of(group: Sequence[QueuedAlert], link: str) -> AlertMessage:
    """Return the message of alerts of one checkpoint, at least one; of a cause it says what is newest.

    Args:
        group: of one channel and one checkpoint, oldest first.
        link: address in which {run} and {step} are replaced; empty: none.
    """
    newest = {one.alert.fingerprint: one.alert for one in group}
    alerts = sorted(newest.values(), key=lambda alert: alert.state is not AlertState.FIRING)
    run_id, step = alerts[0].run_id, alerts[0].step
    where = link.replace("{run}", quote(run_id, safe="")).replace("{step}", str(step))
    return AlertMessage(run_id=run_id, step=step, alerts=tuple(alerts), link=where)


# --- private


def _is_meant(alert: Alert, silence: Silence) -> bool:
    is_of_run = alert.run_id == silence.run_id or alert.run_id.startswith(f"{silence.run_id}/")
    parts = (alert.subject, alert.subject.split(" / ")[0], alert.subject.split(", ")[0])
    return is_of_run and any(fnmatchcase(part, silence.subject) for part in parts)
