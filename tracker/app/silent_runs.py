"""What a watcher has seen of each run: its save intervals, its silence, and whether its trainer still logs."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime

from eval_jobs.types import Checkpoint
from tracker.app.world import Tick
from tracker.domain.alerts.stalls import KEPT, Rhythm, overdue
from tracker.domain.records.alerts import Alert
from tracker.ports import CurveReader


@dataclass(kw_only=True)
class SeenRun:
    """What was seen of one run."""

    rhythm: Rhythm
    newest: Checkpoint | None = None
    end_step: int | None = None
    """Step at which the training ends, according to its newest checkpoint; None: unknown."""
    quiet_s: float = 0.0
    """Seconds since a checkpoint of the run was reported."""
    is_listening: bool = False
    """Whether it has been quiet for so long that the trainer's logs are checked."""
    logged_at: datetime | None = None
    """When the trainer last wrote a log; None: never, or not checked yet."""
    silent_s: float = 0.0
    """Seconds since it was seen to write a log."""
    is_old: bool = False
    """Its newest checkpoint was older than the limit when it was found: the run may not be in training any more."""

    def add_sign(self, at: datetime, step: int) -> None:
        """Record that the trainer wrote the checkpoint of `step` at the time `at`."""
        before = self.rhythm
        # Training that resumes after a long time counts as new: the pause is not one of its intervals.
        known = () if self.is_old and at > before.times[-1] else before.times
        times = tuple(sorted({*known, at}))[-KEPT - 1 :]
        self.rhythm = replace(before, step=step, times=times, stride=max(0, step - before.step))


@dataclass(kw_only=True)
class SilentRuns:
    """Finds the runs whose next checkpoint is overdue."""

    curves: CurveReader
    logged_at: Callable[[str], datetime | None]
    """Returns when the logs of a run had anything new, by its id; None: never."""
    factor: float
    """Usual intervals that may pass without a checkpoint."""
    seen: dict[str, SeenRun] = field(default_factory=dict)

    def has_saved_since(self, run_id: str, at: datetime) -> bool:
        """Return whether a checkpoint of the run was written after `at`."""
        return run_id in self.seen and self.seen[run_id].rhythm.times[-1] > at

    def hear(self, passed: Tick, gone_s: float, now: datetime) -> None:
        """Record what one pass found, `gone_s` after the previous pass."""
        heard = self._add_signs(passed)
        for run_id, run in self.seen.items():
            run.quiet_s += gone_s
            if run_id in heard:
                limit_s = run.rhythm.limit_s(self.factor)
                run.quiet_s = 0.0
                run.is_old = limit_s is not None and (now - run.rhythm.times[-1]).total_seconds() > limit_s
            self._listen(run, gone_s)

    def overdue(self, now: datetime) -> Iterator[Alert]:
        """Yield an alert for every run whose next checkpoint is overdue."""
        late: dict[str, Alert] = {}
        for run_id, run in self.seen.items():
            alert = overdue(run.rhythm, self.factor, quiet_s=run.quiet_s, silent_s=run.silent_s, now=now)
            if alert is not None:
                late[run_id] = alert
        for run_id, alert in late.items():
            if self._is_awaited(self.seen[run_id], late):
                yield alert

    def _add_signs(self, passed: Tick) -> frozenset[str]:
        """Record what the trainers wrote, and return the ids of the runs with news."""
        signs = [(c.ready_at, c.run_id, c.step) for c in passed.checkpoints]
        for gap in passed.gaps:
            signs += [(gap.seen_at, gap.run_id, step) for step in gap.steps[-2:]]  # also the interval
        for at, run_id, step in sorted(signs):
            first = SeenRun(rhythm=Rhythm(run_id=run_id, step=step, times=()))
            self.seen.setdefault(run_id, first).add_sign(at, step)
        for checkpoint in passed.checkpoints:
            run = self.seen[checkpoint.run_id]
            run.newest, run.end_step = checkpoint, self.curves.last_step(checkpoint)
        return frozenset(run_id for _, run_id, _ in signs)

    def _listen(self, run: SeenRun, gone_s: float) -> None:
        """Track whether a trainer logs while no checkpoint arrives. Its clock may differ, so only a change counts."""
        limit_s = run.rhythm.limit_s(self.factor)
        if limit_s is None or run.quiet_s <= limit_s / 2 or run.newest is None:
            run.is_listening, run.silent_s = False, run.quiet_s
            return
        at = self.logged_at(run.newest.run_id)
        has_logged = run.is_listening and at != run.logged_at
        run.silent_s = 0.0 if has_logged else run.silent_s + gone_s
        run.is_listening, run.logged_at = True, at

    def _is_awaited(self, run: SeenRun, late: Collection[str]) -> bool:
        """Return whether a late run is still expected to write a checkpoint."""
        if run.end_step is not None:
            return run.rhythm.has_next_before(run.end_step)
        # If the end step is unknown, wait only for the run that wrote last, and only while no other run may yet write.
        for run_id, other in self.seen.items():
            if other.end_step is not None or other.is_old:
                continue
            may_write = run_id not in late and other.rhythm.limit_s(self.factor) is not None
            if may_write or other.rhythm.times[-1] > run.rhythm.times[-1]:
                return False
        return not run.is_old
