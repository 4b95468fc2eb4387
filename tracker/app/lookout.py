"""Looks out for what nobody tells, once a pass of the watcher: no checkpoint, and no evaluation, for too long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain

from eval_jobs.queue_types import QueueState
from eval_jobs.types import Checkpoint
from tracker.app.alerting import Crier
from tracker.app.pipeline import Tick
from tracker.domain.alert_types import Alert, AlertKind, Patience
from tracker.domain.blind_spots import PLANS, Rhythm, idle_queue, over, overdue, slow_plan
from tracker.ports import CurveReader

SLOWER = 5.0
"""Times the longest evaluation so far."""

_KEPT = 20
"""Times of checkpoints."""


@dataclass(kw_only=True)
class Lookout:
    """What one watcher has seen, and which of its alerts last."""

    run: str
    crier: Crier
    curves: CurveReader
    patience: Patience
    watched_since: datetime
    rhythms: dict[str, Rhythm] = field(default_factory=dict)
    newest: dict[str, Checkpoint] = field(default_factory=dict)
    """By run."""
    idle_since: datetime | None = None
    """When checkpoints were first found to wait with nobody at work; None: somebody is."""
    begun: dict[str, datetime] = field(default_factory=dict)
    """Since when each plan runs, or ran until it is reported."""
    longest_s: float = 0.0
    """Of an evaluation that was finished."""
    finished: int = 0
    lasting: dict[str, Alert] = field(default_factory=dict)
    """By fingerprint."""
    known: set[str] = field(default_factory=set)
    """Runs whose lasting alerts were read: an earlier process may have raised them."""

    def look(self, passed: Tick, state: QueueState, now: datetime, *, is_training: bool) -> None:
        """Take in what one pass found, and tell people what lasts too long or is over.

        Raises:
            StoreError: nobody can be told; the next pass tries again.
        """
        self._hear(passed)
        self._recall()
        has_progress = self._count(passed, state, now)
        overdue_now = self._overdue(now) if is_training else iter(())
        self._say(chain(overdue_now, self._stuck(state, now, has_progress=has_progress)), now)

    # --- private

    def _hear(self, passed: Tick) -> None:
        self.newest |= {checkpoint.run_id: checkpoint for checkpoint in passed.checkpoints}
        signs = [(c.ready_at, c.run_id, c.step) for c in passed.checkpoints]
        signs += [(gap.seen_at, gap.run_id, gap.step) for gap in passed.gaps]
        for at, run_id, step in sorted(signs):
            before = self.rhythms.get(run_id) or Rhythm(run_id=run_id, step=step, times=())
            self.rhythms[run_id] = replace(before, step=step, times=tuple(sorted({*before.times, at}))[-_KEPT:])

    def _count(self, passed: Tick, state: QueueState, now: datetime) -> bool:
        """Take note of who works on what; return whether an evaluation was finished, or none is left."""
        self.begun |= {one.plan.id: one.since for one in state.running}
        done = [self.begun.pop(report.plan_id, None) for report in passed.reports]
        self.finished += len(done)
        self.longest_s = max([self.longest_s, *((now - since).total_seconds() for since in done if since)])
        left = sum(state.unfinished.values())
        # A worker that gave a plan back to wait, and said why, is at work: it keeps to the settings.
        is_idle = left > 0 and not state.running and not any(waiting.note for waiting in state.waiting)
        self.idle_since = (self.idle_since or now) if is_idle else None
        return bool(done) or left == 0

    def _overdue(self, now: datetime) -> Iterator[Alert]:
        last = max((r.times[-1] for r in self.rhythms.values()), default=None)
        for alert in self._lasting(AlertKind.OVERDUE):
            rhythm = self.rhythms.get(alert.run_id)
            if rhythm is None or rhythm.times[-1] <= alert.raised_at:
                yield alert  # whoever told it may have been another process, which had watched for longer
        for run_id, rhythm in self.rhythms.items():
            late = overdue(rhythm, self.patience.overdue_factor, watched_since=self.watched_since, now=now)
            if late is not None and not self._has_ended(run_id, rhythm, last):
                yield late

    def _has_ended(self, run_id: str, rhythm: Rhythm, last: datetime | None) -> bool:
        """Say whether training is over as far as anybody can know: by the trainer's own word.

        Without that, of several runs in one folder only the one that wrote last is waited for.
        """
        ends_at = self.curves.last_step(self.newest[run_id]) if run_id in self.newest else None
        return rhythm.step >= ends_at if ends_at is not None else rhythm.times[-1] != last

    def _stuck(self, state: QueueState, now: datetime, *, has_progress: bool) -> Iterator[Alert]:
        after_s = self.patience.stuck_after_s
        if has_progress or not after_s:
            return
        yield from self._lasting(AlertKind.STUCK)
        if self.idle_since is not None and (idle_s := (now - self.idle_since).total_seconds()) > after_s:
            yield idle_queue(state, self.run, idle_s, now)
        limit_s = max(after_s, SLOWER * self.longest_s) if self.finished >= PLANS else float("inf")
        # Of a sweep nobody knows how long one of its evaluations may take: loads are as long as they are written.
        own = (one for one in state.running if one.plan.sweep is None)
        slow = [one for one in own if (now - one.since).total_seconds() > limit_s]
        if slow:
            yield slow_plan(slow, self.run, self.longest_s, now)

    def _lasting(self, kind: AlertKind) -> tuple[Alert, ...]:
        return tuple(alert for alert in self.lasting.values() if alert.kind is kind)

    def _say(self, found: Iterable[Alert], now: datetime) -> None:
        present: dict[str, Alert] = {}
        for alert in found:
            present.setdefault(alert.fingerprint, alert)
        begun = [alert for key, alert in present.items() if key not in self.lasting]
        ended = [over(alert, now) for key, alert in self.lasting.items() if key not in present]
        self.crier.tell([*begun, *ended])
        self.lasting = present

    def _recall(self) -> None:
        for run_id in {self.run, *self.rhythms} - self.known:
            for alert in self.crier.history.open_alerts(run_id):
                if alert.kind in (AlertKind.OVERDUE, AlertKind.STUCK):
                    self.lasting.setdefault(alert.fingerprint, alert)
            self.known.add(run_id)
