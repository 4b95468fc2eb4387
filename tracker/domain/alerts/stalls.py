"""What nobody tells: a trainer that writes no checkpoint any more, and checkpoints that nobody evaluates. Pure."""

import statistics
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise

from eval_jobs.identity import content_hash
from eval_jobs.queue_types import QueueState, Running
from eval_jobs.records.progress import progress_text
from tracker.domain.alerts.evidence import looking
from tracker.domain.alerts.rules import CHECKPOINT
from tracker.domain.records.alerts import Alert, AlertKind, AlertState, AlertSubject, SubjectKind
from tracker.domain.records.display import count_text, duration_text

INTERVALS = 3
"""Between checkpoints; from fewer nobody can say what is usual."""
NEWEST = 10
"""Intervals that say what is usual: a trainer's pace changes."""
KEPT = 200
"""Intervals in which a pause that comes again and again is looked for: a trainer evaluates every so often."""
HABIT = 20.0
"""Times the usual: what lasted longer was no pause of a trainer, but a machine that was down."""
LONGEST = 2.5
"""Times the longest pause that nobody is called for: it may be longer next time, as where a run saves less and less."""
LOGGING = 10.0
"""Times longer is waited for a trainer that logs all the while: it lives, and saves less often than it did."""
SHORTEST_S = 600.0
"""Nobody is called for less, however fast a run saves."""
COPIED_S = 10.0
"""Checkpoints that follow each other faster were copied here; how fast the trainer saves, they do not say."""
PLANS = 3
"""Evaluations after which it is known how long one takes."""

QUEUE = AlertSubject(kind=SubjectKind.QUEUE)


@dataclass(frozen=True, kw_only=True)
class Rhythm:
    """How a run has written checkpoints so far."""

    run_id: str
    step: int
    """Of the newest one."""
    times: tuple[datetime, ...]
    """When the trainer finished each, ascending."""
    stride: int = 0
    """Steps between the newest one and the one before; 0: not known."""

    @property
    def usual_s(self) -> float | None:
        """Median of the newest intervals, None while that says nothing."""
        intervals = self._intervals_s
        usual_s = statistics.median(intervals) if len(intervals) >= INTERVALS else 0.0
        if usual_s >= COPIED_S:
            return usual_s
        return None

    def limit_s(self, factor: float) -> float | None:
        """Return for how long no checkpoint may come: `factor` times what is usual; None: nobody can say."""
        usual_s = self.usual_s
        if usual_s is None or not factor:
            return None
        return max(factor * usual_s, min(factor, LONGEST) * self._pause_s, SHORTEST_S)

    def has_next_before(self, end_step: int) -> bool:
        """Say whether it saves once more before the training ends at that step, as far as its stride tells."""
        return self.step < end_step and self.step + self.stride <= end_step

    @property
    def _intervals_s(self) -> list[float]:
        return [(b - a).total_seconds() for a, b in pairwise(self.times[-NEWEST - 1 :])]

    @property
    def _pause_s(self) -> float:
        """Longest of the newest intervals, or what comes again among all."""
        newest_s = self._intervals_s
        longest_s = HABIT * statistics.median(newest_s)
        all_s = ((b - a).total_seconds() for a, b in pairwise(self.times[-KEPT - 1 :]))
        return max(*newest_s, *sorted(s for s in all_s if s <= longest_s)[-2:-1])


def overdue(rhythm: Rhythm, factor: float, *, quiet_s: float, silent_s: float, now: datetime) -> Alert | None:
    """Return the alert of a run whose next checkpoint should have come long ago, None where it should not.

    Args:
        rhythm: of the run.
        factor: times the usual interval.
        quiet_s: for how long somebody has looked and seen no checkpoint. What came before is no silence.
        silent_s: the same of the trainer's logs; as long as `quiet_s` where it keeps none.
        now: the present.
    """
    usual_s, limit_s = rhythm.usual_s, rhythm.limit_s(factor)
    if usual_s is None or limit_s is None:
        return None
    is_logging = silent_s <= limit_s
    if quiet_s <= limit_s * (LOGGING if is_logging else 1.0):
        return None
    why = "training may have hung or ended, or may save less often or elsewhere"
    if is_logging:
        why = "training still writes logs, but saves less often or elsewhere, or fails to save"
    return Alert(
        fingerprint=_cause(rhythm.run_id, AlertKind.OVERDUE),
        run_id=rhythm.run_id,
        step=rhythm.step,
        kind=AlertKind.OVERDUE,
        subject=CHECKPOINT,
        state=AlertState.FIRING,
        message=f"no checkpoint for {duration_text(quiet_s)} since step {rhythm.step} "
        f"(usual interval {duration_text(usual_s)}): {why}",
        command=looking(rhythm.run_id),
        raised_at=now,
    )


def idle_queue(state: QueueState, run: str, idle_s: float, now: datetime) -> Alert:
    """Return the alert that evaluations are pending and no worker has evaluated one for `idle_s`."""
    left = count_text(sum(state.unfinished.values()), "evaluation")
    steps = [waiting.step for waiting in state.waiting] + [one.plan.checkpoint.step for one in state.running]
    return _stuck(
        run,
        steps[0] if steps else 0,
        f"{left} pending, no worker active for {duration_text(idle_s)}: "
        "start `tracker worker`, or read the logs of the workers",
        now,
    )


def slow_plan(slow: Running, run: str, *, for_s: float, longest_s: float, now: datetime) -> Alert:
    """Return the alert of an evaluation that has taken `for_s`; `longest_s`: of those before it."""
    step, shown = slow.plan.checkpoint.step, progress_text(slow.progress)
    note = f" ({shown})" if shown else ""
    alert = _stuck(
        run,
        step,
        f"evaluation of step {step} has been running for {duration_text(for_s)} on {slow.worker}{note}; "
        f"earlier ones took at most {duration_text(longest_s)}: check the log of that worker",
        now,
    )
    return replace(alert, command=looking(slow.plan.checkpoint.run_id))


def over(alert: Alert, now: datetime, *, is_training: bool) -> Alert:
    """Return the end of such an alert."""
    why = "evaluations are running again, or none is pending"
    if alert.kind is AlertKind.OVERDUE:
        why = "new checkpoints are arriving" if is_training else "training has ended"
    return replace(alert, state=AlertState.RESOLVED, message=why, raised_at=now)


def ends_of_unknown(run: str, step: int, now: datetime) -> tuple[Alert, Alert]:
    """Return the ends of what a process may have told and not noted, because it was killed in between."""
    stuck = _stuck(run, step, "", now)
    late = replace(stuck, fingerprint=_cause(run, AlertKind.OVERDUE), kind=AlertKind.OVERDUE, subject=CHECKPOINT)
    why = "raised by a watcher that was killed; it is raised again if the problem persists"
    return (
        replace(stuck, state=AlertState.RESOLVED, message=why),
        replace(late, state=AlertState.RESOLVED, message=why),
    )


# --- private


def _cause(run: str, kind: AlertKind) -> str:
    return content_hash([run, kind])


def _stuck(run: str, step: int, message: str, now: datetime) -> Alert:
    return Alert(
        fingerprint=_cause(run, AlertKind.STUCK),
        run_id=run,
        step=step,
        kind=AlertKind.STUCK,
        subject=QUEUE,
        state=AlertState.FIRING,
        message=message,
        command="tracker worker",
        raised_at=now,
    )
