"""`tracker watch`: repeats the tick until watching ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from eval_jobs.errors import StoreError
from eval_jobs.ports import Clock
from eval_jobs.queue_types import QueueState
from tracker.app.health.notices import TrainingMonitor
from tracker.app.plans import renewed, withdraw_outdated
from tracker.app.settings_change import restore
from tracker.app.stall_monitor import stall_monitor
from tracker.app.tick import tick
from tracker.app.world import Tick, WatchState, World
from tracker.domain.alerts.training import RunStanding
from tracker.domain.records.display import count_text
from tracker.ports import CheckpointSource

log = logging.getLogger(__name__)

TICK_S = 1.0
MAX_PASS_S = 5.0
"""Maximum that one pass adds to the time without a new checkpoint: a pass may be slow for other reasons."""
LAST_PASSES = 60
"""Maximum passes at the end in which a store takes nothing; the next start sends what is left after them."""

Show = Callable[[Tick, QueueState], None]
"""Called after every pass."""


@dataclass(frozen=True, kw_only=True)
class StopRule:
    """Conditions under which watching ends on its own."""

    training_ended: Callable[[], bool]
    """Returns whether no further checkpoint is expected."""
    quiet_s: float
    """Seconds without a new checkpoint that must follow, so that the last one has settled."""
    is_superseded: Callable[[], bool] = lambda: False
    """Returns whether to stop after this pass, to begin again with other settings."""


def watch(
    world: World, state: WatchState, *, clock: Clock, keep_workers: Callable[[], None], stop: StopRule, show: Show
) -> None:
    """Watch until the training has ended and all its checkpoints are evaluated and published, or settings change.

    `keep_workers` is called once per pass: it restarts workers that died and raises if they cannot run. A store error
    (full disk, unreachable database) is logged once and the store is retried: pinning must continue, or rotation
    deletes the checkpoints.
    """
    stores, quiet = _Stores(), _QuietTime(stop.quiet_s)
    monitor = stall_monitor(world.keeping.run, world.dispatcher, world.curves, world.history, world.queue.holds)

    training = _training_monitor(world, state)

    def do_pass(now: datetime) -> tuple[Tick, QueueState]:
        passed, queued = tick(world, state, now), world.queue.state()
        state.aside.attempt("show", "cannot show the progress", partial(show, passed, queued), None)
        return passed, queued

    has_begun = was_idle = False
    while True:
        has_ended = stop.training_ended()  # before the disk scan, which then sees everything that was saved
        started_at, is_quiet, is_idle, is_done = clock.now(), False, False, False
        with stores.asked():
            # Before the first plans are added: they carry the current settings.
            has_begun = has_begun or _begin(world, state, started_at)
            passed, queued = do_pass(started_at)
            look = partial(monitor.look, passed, queued, started_at, is_training=not has_ended)
            state.aside.attempt("stalls", "cannot look for stalls", look, None)
            state.aside.attempt("training", "cannot report on the training", partial(training.look, started_at), None)
            is_quiet = has_ended and _has_no_news(passed, world.source)
            is_idle = not (queued.waiting or queued.running or state.reasks.checkpoints)
            # A result that arrives late in a pass is reviewed by the next pass, and may lead to more plans.
            is_done = was_idle and is_idle and not (passed.skipped or passed.reports)
        was_idle = is_idle
        keep_workers()
        if stop.is_superseded():
            return  # the caller begins again with the new settings
        # Both conditions are needed: the trainer's folder is quiet while the last checkpoints are being evaluated.
        if quiet.is_over(started_at, clock.now(), is_quiet=is_quiet) and is_done:
            break
        world.source.wait(TICK_S)
    world.source.give_up(clock.now())
    with stores.asked():
        training.look(clock.now(), has_ended=True)
    _send_what_is_left(world, stores, lambda: do_pass(clock.now())[0], keep_workers)


def _has_no_news(passed: Tick, source: CheckpointSource) -> bool:
    return not (passed.checkpoints or passed.gaps or source.is_behind())


def _send_what_is_left(
    world: World, stores: _Stores, do_pass: Callable[[], Tick], keep_workers: Callable[[], None]
) -> None:
    """Do passes until nothing waits for the tracking store, or it takes nothing in `LAST_PASSES` of them."""
    left, idle = 0, 0
    while idle < LAST_PASSES:
        idle += 1
        with stores.asked():
            unsent = do_pass().unsent
            if not unsent:
                return
            if unsent < left:
                idle = 0
            left = unsent
        keep_workers()
        world.source.wait(TICK_S)


class _Stores:
    """Logs a store error once, and once that the store works again."""

    def __init__(self) -> None:
        self._error_code = ""

    @contextmanager
    def asked(self) -> Iterator[None]:
        """Log a `StoreError` raised in this context instead of propagating it."""
        try:
            yield
        except StoreError as error:
            # Compare codes: the message of a database for the same fault can differ between attempts.
            if error.code != self._error_code:
                log.warning("%s; retrying", error)
            self._error_code = error.code
            return
        if self._error_code:
            log.warning("database and files usable again")
        self._error_code = ""


class _QuietTime:
    """Adds up the time without a new checkpoint. Clock changes and slow passes do not count as quiet time."""

    def __init__(self, enough_s: float) -> None:
        self._enough_s = enough_s
        self._since: datetime | None = None
        self._quiet_s = 0.0

    def is_over(self, started_at: datetime, now: datetime, *, is_quiet: bool) -> bool:
        """Return whether the quiet time is long enough, after a pass that began at `started_at`."""
        if not is_quiet:
            self._since, self._quiet_s = None, 0.0
            return False
        if self._since is None:
            self._since = now
            return False
        passed_s = (started_at - self._since).total_seconds()
        self._quiet_s += min(max(0.0, passed_s), MAX_PASS_S)
        self._since = started_at
        return self._quiet_s >= self._enough_s


def _training_monitor(world: World, state: WatchState) -> TrainingMonitor:
    def standing(run_id: str) -> RunStanding:
        steps = [step for run, step in state.seen if run == run_id]
        evaluated = {record.plan.checkpoint.step for record in world.history.records(run_id)}
        newest = max((*steps, *evaluated), default=None)
        return RunStanding(checkpoint=newest, is_evaluated=newest in evaluated)

    return TrainingMonitor(
        run=world.keeping.run,
        history=world.history,
        tracking=world.tracking,
        dispatcher=world.dispatcher,
        standing=standing,
    )


def _begin(world: World, state: WatchState, now: datetime) -> bool:
    world.history.log(state.opening)
    gone, measurement = world.keeping.pins.given_up(), world.measurement
    revived = world.queue.revive(lambda plan: None if plan.checkpoint.uri in gone else renewed(plan, measurement))
    if revived:
        log.warning("requeued %s after a failed evaluation", count_text(revived, "checkpoint"))
    withdrawn = {plan.checkpoint.step for plan in withdraw_outdated(world)}
    if withdrawn:
        count = count_text(len(withdrawn), "checkpoint")
        log.warning("replaced the pending evaluations of %s: settings changed", count)
    restored = restore(world, now)
    if restored:
        log.warning("settings changed back: the results of %s are known", count_text(restored, "checkpoint"))
    return True
