"""What nobody tells: a trainer that writes no checkpoint any more, and checkpoints that nobody evaluates. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise

from eval_jobs.identity import content_hash
from eval_jobs.queue_types import QueueState, Running
from tracker.domain.alert_types import Alert, AlertKind, AlertState
from tracker.domain.alerts import CHECKPOINT
from tracker.domain.display import count_text, duration_text

INTERVALS = 3
"""Between checkpoints; from fewer nobody can say what is usual."""
NEWEST = 10
"""Intervals that are looked at: a trainer's pace changes."""
SHORTEST_S = 600.0
"""Nobody is called for less, however fast a run saves."""
COPIED_S = 10.0
"""Checkpoints that follow each other faster were copied here; how fast the trainer saves, they do not say."""
PLANS = 3
"""Evaluations after which it is known how long one takes."""

QUEUE = "queue"
"""Subject of what is about all waiting checkpoints."""


@dataclass(frozen=True, kw_only=True)
class Rhythm:
    """How a run has written checkpoints so far."""

    run_id: str
    step: int
    """Of the newest one."""
    times: tuple[datetime, ...]
    """When the trainer finished each, ascending."""

    @property
    def usual_s(self) -> float | None:
        """Median of the newest intervals, None while that says nothing."""
        newest = self.times[-NEWEST - 1 :]
        intervals = [(b - a).total_seconds() for a, b in pairwise(newest)]
        usual_s = statistics.median(intervals) if len(intervals) >= INTERVALS else 0.0
        return usual_s if usual_s >= COPIED_S else None


def overdue(rhythm: Rhythm, factor: float, *, watched_since: datetime, now: datetime) -> Alert | None:
    """Return the alert of a run whose next checkpoint should have come long ago, None where it should not.

    What came before anybody watched is no silence: the time counts from `watched_since` at the earliest.
    """
    usual_s = rhythm.usual_s
    if usual_s is None or not factor:
        return None
    limit = timedelta(seconds=max(factor * usual_s, SHORTEST_S))
    if now - max(rhythm.times[-1], watched_since) <= limit:
        return None
    silent_s = (now - rhythm.times[-1]).total_seconds()
    return Alert(
        fingerprint=content_hash([rhythm.run_id, AlertKind.OVERDUE]),
        run_id=rhythm.run_id,
        step=rhythm.step,
        kind=AlertKind.OVERDUE,
        subject=CHECKPOINT,
        state=AlertState.FIRING,
        message=f"no checkpoint for {duration_text(silent_s)} after step {rhythm.step}, usually one comes every "
        f"{duration_text(usual_s)}: the training hangs, has ended, or saves elsewhere",
        raised_at=now,
    )


def idle_queue(state: QueueState, run: str, idle_s: float, now: datetime) -> Alert:
    """Return the alert that checkpoints wait and nobody has worked on any for `idle_s`."""
    left = count_text(sum(state.unfinished.values()), "evaluation")
    first = state.waiting[0].step if state.waiting else 0
    return _stuck(
        run,
        first,
        f"{left} waiting, and nobody has worked on one for {duration_text(idle_s)}: "
        "start a `tracker worker`, or look at why the workers fail",
        now,
    )


def slow_plan(running: Sequence[Running], run: str, longest_s: float, now: datetime) -> Alert:
    """Return the alert of the evaluation that takes longest, of at least one; `longest_s`: of those before it."""
    oldest = min(running, key=lambda r: r.since)
    step, note = oldest.plan.checkpoint.step, f" ({oldest.note})" if oldest.note else ""
    return _stuck(
        run,
        step,
        f"step {step} has been evaluated for {duration_text((now - oldest.since).total_seconds())} by "
        f"{oldest.worker}{note}, those before took up to {duration_text(longest_s)}",
        now,
    )


def over(alert: Alert, now: datetime) -> Alert:
    """Return the end of such an alert."""
    is_overdue = alert.kind is AlertKind.OVERDUE
    why = "a checkpoint came, or the training has ended" if is_overdue else "evaluations go on, or none is left"
    return replace(alert, state=AlertState.RESOLVED, message=why, raised_at=now)


# --- private


def _stuck(run: str, step: int, message: str, now: datetime) -> Alert:
    return Alert(
        fingerprint=content_hash([run, AlertKind.STUCK]),
        run_id=run,
        step=step,
        kind=AlertKind.STUCK,
        subject=QUEUE,
        state=AlertState.FIRING,
        message=message,
        raised_at=now,
    )
