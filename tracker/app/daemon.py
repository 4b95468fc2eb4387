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
from tracker.app.news import StoreNews
from tracker.app.plans import renewed, withdraw_outdated
from tracker.app.settings_change import restore
from tracker.app.stall_monitor import stall_monitor
from tracker.app.tick import advance, find, tick
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

    def do_pass(now: datetime) -> Tick:
        return advance(world, state, now)

    passes = _Passes(world=world, state=state, show=show, do_pass=do_pass)
    has_begun = was_idle = False
    while True:
        has_ended = stop.training_ended()  # before the disk scan, which then sees everything that was saved
        started_at, is_quiet, is_idle, is_done = clock.now(), False, False, False
        with stores.asked():
            # Before the first plans are added: they carry the current settings.
            has_begun = has_begun or _begin(world, state, started_at)
            passed, is_idle = passes.do(started_at, has_ended=has_ended)
            is_quiet = has_ended and _has_no_news(passed, world.source)
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
        passes.report_training(clock.now(), has_ended=True)
    _send_what_is_left(world, stores, lambda: passes.tick(clock.now()), keep_workers)


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


class _Passes:
    """The passes of one watcher: over the disk every time, over the store only if it has or awaits anything new."""

    def __init__(self, *, world: World, state: WatchState, show: Show, do_pass: Callable[[datetime], Tick]) -> None:
        run, dispatcher, history = world.keeping.run, world.dispatcher, world.history
        self._world, self._state, self._show, self._do_pass = world, state, show, do_pass
        self._news = StoreNews(run=run, history=history)
        self._stalls = stall_monitor(run, dispatcher, world.curves, history, world.queue.holds)
        self._training = _training_monitor(world, state)
        self._shown = Tick()
        """What the last pass over the store left."""

    def do(self, now: datetime, *, has_ended: bool) -> tuple[Tick, bool]:
        """Do one pass; return what it found, and whether nothing is left to evaluate."""
        state, news = self._state, self._news
        has_found = find(self._world, state, now)
        if any((has_found, state.is_woken, has_ended)):
            news.is_busy = True
        if not news.is_due(now):
            return self._rest(), True
        state.is_woken = False
        self._training.note(news.take(now))
        if news.is_busy:
            passed, queued = self._ended(self._do_pass(now))
        else:
            passed, queued = self._rest(), QueueState()
        has_reported = self._report(passed, queued, now, is_training=not has_ended)
        is_idle = not (queued.waiting or queued.running or state.reasks.checkpoints)
        if not (has_reported or self._has_more(passed)):
            news.is_busy = not is_idle
        return passed, is_idle

    def _report(self, passed: Tick, queued: QueueState, now: datetime, *, is_training: bool) -> bool:
        """Look for stalls and at the training; return whether alerts or curves were queued, or it failed."""
        attempt, look = self._state.aside.attempt, partial(self._stalls.look, passed, queued, now)
        stalls = partial(look, is_training=is_training)
        has_stalled = attempt("stalls", "cannot look for stalls", stalls, otherwise=True)
        training = partial(self._training.look, now)
        return attempt("training", "cannot report on the training", training, otherwise=True) or has_stalled

    def tick(self, now: datetime) -> Tick:
        """Do one pass over disk and store without looking for stalls."""
        return self._ended(tick(self._world, self._state, now))[0]

    def report_training(self, now: datetime, *, has_ended: bool) -> None:
        """Report what the newest logs of the training show."""
        self._training.note(self._news.take(now))
        self._training.look(now, has_ended=has_ended)

    def _ended(self, passed: Tick) -> tuple[Tick, QueueState]:
        queued = self._world.queue.state()
        self._show_progress(passed, queued)
        self._shown = Tick(rejected=passed.rejected, set_aside=passed.set_aside)
        return passed, queued

    def _rest(self) -> Tick:
        self._show_progress(self._shown, QueueState())
        return self._shown

    def _show_progress(self, passed: Tick, queued: QueueState) -> None:
        self._state.aside.attempt("show", "cannot show the progress", partial(self._show, passed, queued), None)

    def _has_more(self, passed: Tick) -> bool:
        """Return whether the next pass continues what this one began, or tries again what failed."""
        state, sweeps = self._state, self._world.sweeps
        if any((state.found, state.reasks.taken_over, state.aside.found, self._training.is_waiting)):
            return True
        if sweeps is not None and sweeps.sweeps:
            return True
        return passed != self._shown  # what waits for MLflow or a channel, too


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
