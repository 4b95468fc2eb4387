"""Stalls: no new checkpoint, checkpoints that no worker evaluates, results that MLflow rejects. Pure."""

import statistics
from collections.abc import Sequence
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
from tracker.domain.records.tracking import RejectedItem

INTERVALS = 3
"""Minimum number of intervals between checkpoints that defines a usual one."""
NEWEST = 10
"""Newest intervals that define the usual one: a trainer's pace changes."""
KEPT = 200
"""Intervals that are searched for a recurring pause, such as the trainer's own periodic evaluation."""
HABIT = 20.0
"""Times the usual interval: a longer one was not a pause of the trainer, but a machine that was down."""
LONGEST = 2.5
"""Maximum multiple of the longest pause in the limit: the next may be longer, if a run saves less and less often."""
LOGGING = 10.0
"""Factor on the limit while the trainer still logs: it is running, and may save less often than before."""
SHORTEST_S = 600.0
"""Minimum limit, however fast a run saves."""
COPIED_S = 10.0
"""Checkpoints at shorter intervals were copied here; they do not show how often the trainer saves."""
PLANS = 3
"""Finished evaluations after which the usual duration is known."""

_SUBJECTS = {
    AlertKind.OVERDUE: CHECKPOINT,
    AlertKind.STUCK: AlertSubject(kind=SubjectKind.QUEUE),
    AlertKind.UNSENT: AlertSubject(kind=SubjectKind.TRACKING),
    AlertKind.BUG: CHECKPOINT,
}
_START_WORKER = "tracker worker"


@dataclass(frozen=True, kw_only=True)
class Rhythm:
    """When a run has written checkpoints so far."""

    run_id: str
    step: int
    """Step of the newest checkpoint."""
    times: tuple[datetime, ...]
    """Times at which the trainer finished each, ascending."""
    stride: int = 0
    """Steps between the newest checkpoint and the one before; 0: unknown."""

    @property
    def usual_s(self) -> float | None:
        """Median of the newest intervals in seconds; None: too few, or too short."""
        intervals = self._intervals_s
        usual_s = statistics.median(intervals) if len(intervals) >= INTERVALS else 0.0
        if usual_s >= COPIED_S:
            return usual_s
        return None

    def limit_s(self, factor: float) -> float | None:
        """Return the limit of the time without a checkpoint, at least `factor` usual intervals; None: unknown."""
        usual_s = self.usual_s
        if usual_s is None or not factor:
            return None
        return max(factor * usual_s, min(factor, LONGEST) * self._pause_s, SHORTEST_S)

    def has_next_before(self, end_step: int) -> bool:
        """Return whether another save is expected up to `end_step`, judging by the stride."""
        return self.step < end_step and self.step + self.stride <= end_step

    @property
    def _intervals_s(self) -> list[float]:
        return [(b - a).total_seconds() for a, b in pairwise(self.times[-NEWEST - 1 :])]

    @property
    def _pause_s(self) -> float:
        """Longest of the newest intervals, or second longest of all, which shows a recurring pause; in seconds."""
        newest_s = self._intervals_s
        longest_s = HABIT * statistics.median(newest_s)
        all_s = ((b - a).total_seconds() for a, b in pairwise(self.times[-KEPT - 1 :]))
        return max(*newest_s, *sorted(s for s in all_s if s <= longest_s)[-2:-1])


def overdue(rhythm: Rhythm, factor: float, *, quiet_s: float, silent_s: float, now: datetime) -> Alert | None:
    """Return the alert of a run whose next checkpoint is overdue, else None.

    Args:
        rhythm: of the run.
        factor: multiple of the usual interval.
        quiet_s: watched time without a checkpoint. Time before watching began does not count.
        silent_s: the same for the trainer's logs; equal to `quiet_s` if it writes none.
        now: the current time.
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
    since = f"no checkpoint for {duration_text(quiet_s)} since step {rhythm.step}"
    message = f"{since} (usual interval {duration_text(usual_s)}): {why}"
    alert = _firing(AlertKind.OVERDUE, rhythm.run_id, rhythm.step, message, now)
    return replace(alert, command=looking(rhythm.run_id))


def idle_queue(state: QueueState, run: str, idle_s: float, now: datetime) -> Alert:
    """Return the alert that evaluations are pending and no worker was active for `idle_s`."""
    left = count_text(sum(state.unfinished.values()), "evaluation")
    steps = [waiting.step for waiting in state.waiting] + [one.plan.checkpoint.step for one in state.running]
    hint = "start `tracker worker`, or see the logs of the workers"
    message = f"{left} pending, no worker active for {duration_text(idle_s)}: {hint}"
    alert = _firing(AlertKind.STUCK, run, steps[0] if steps else None, message, now)
    return replace(alert, command=_START_WORKER)


def slow_plan(slow: Running, run: str, *, for_s: float, longest_s: float, now: datetime) -> Alert:
    """Return the alert of an evaluation that has taken `for_s`; earlier ones took at most `longest_s`."""
    step, shown = slow.plan.checkpoint.step, progress_text(slow.progress)
    note = f" ({shown})" if shown else ""
    took = f"evaluation of step {step} has been running for {duration_text(for_s)} on {slow.worker}{note}"
    usual = f"earlier ones took at most {duration_text(longest_s)}: check the log of that worker"
    alert = _firing(AlertKind.STUCK, run, step, f"{took}; {usual}", now)
    return replace(alert, command=looking(slow.plan.checkpoint.run_id))


def rejected_results(run: str, rejected: Sequence[RejectedItem], now: datetime) -> Alert:
    """Return the alert that the tracking store rejects results; resolved if it rejects none."""
    if not rejected:
        accepted = _firing(AlertKind.UNSENT, run, None, "MLflow has accepted all results", now)
        return replace(accepted, state=AlertState.RESOLVED)
    count, first = count_text(len(rejected), "result"), rejected[0]
    message = f"{count} not in MLflow, which rejected each five times; {first.run_id}: {first.reason}"
    return _firing(AlertKind.UNSENT, run, None, message, now)


def set_aside(run: str, failed: Sequence[str], now: datetime) -> Alert:
    """Return the alert that something fails because of a bug or is damaged; resolved if nothing does."""
    if not failed:
        return replace(_firing(AlertKind.BUG, run, None, "nothing is set aside", now), state=AlertState.RESOLVED)
    message = f"{count_text(len(failed), 'item')} set aside after an error; {failed[0]}"
    return _firing(AlertKind.BUG, run, None, message, now)


def over(alert: Alert, now: datetime, *, is_training: bool) -> Alert:
    """Return the resolved form of such an alert."""
    why = "evaluations are running again, or none is pending"
    if alert.kind is AlertKind.OVERDUE:
        why = "new checkpoints are arriving" if is_training else "training has ended"
    return replace(alert, state=AlertState.RESOLVED, message=why, raised_at=now)


def ends_of_unknown(run: str, step: int, now: datetime) -> tuple[Alert, ...]:
    """Return resolved alerts for those that a killed process may have queued and not stored."""
    why = "raised by a watcher that was killed; it is raised again if the problem persists"
    firing = (_firing(kind, run, step, why, now) for kind in (AlertKind.STUCK, AlertKind.OVERDUE))
    return tuple(replace(alert, state=AlertState.RESOLVED, command=_START_WORKER) for alert in firing)


def _firing(kind: AlertKind, run: str, step: int | None, message: str, now: datetime) -> Alert:
    return Alert(
        fingerprint=content_hash([run, kind]),
        run_id=run,
        step=step,
        kind=kind,
        subject=_SUBJECTS[kind],
        state=AlertState.FIRING,
        message=message,
        raised_at=now,
    )
