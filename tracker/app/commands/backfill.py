"""`tracker backfill`: evaluates the existing checkpoints of a folder one after the other, in a chosen order.

    source = InTurn(places, queue=world.queue)
    watch(replace(quiet(world), source=source), ...)  # the rest is what a watcher does
    notify_of_lasting(world, run_ids)

    fill_beside(world, state, source, show=...)  # instead, where another process watches the run

A checkpoint is pinned only when it is next: reading the weights of a whole run takes long. What is already in the queue
or the history is not evaluated again, so a backfill that was killed resumes.
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from eval_jobs.errors import CheckpointError, TrackerError
from eval_jobs.host.unforeseen import bug_of, error_text
from eval_jobs.identity import series_fingerprint, series_serving_hash
from eval_jobs.ports import Clock, QueueStatus
from eval_jobs.types import Checkpoint, EvalRecord, Suite
from tracker.app.daemon import TICK_S, Show
from tracker.app.gaps import gap_of, remember_gaps
from tracker.app.planning import ask_again, plan_found
from tracker.app.world import MeasurementPlan, Tick, WatchState, World
from tracker.domain.alerts.lasting import OF_CHECKPOINTS, lasting_alerts
from tracker.domain.records.types import Gap

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class FilledPlace:
    """One existing checkpoint that may be evaluated."""

    run_id: str
    step: int
    uri: str
    pinned: Callable[[], Checkpoint]
    """Pins the checkpoint, or raises `CheckpointError`."""


class InTurn:
    """A `tracker.ports.CheckpointSource` that returns the next checkpoint when no plan of its runs is waiting."""

    def __init__(self, places: Sequence[FilledPlace], queue: QueueStatus) -> None:
        """Create the source without pinning anything.

        `places` are in evaluation order; waiting plans of `queue` delay the next one.
        """
        self._left = list(places)
        self._own = frozenset((place.run_id, place.step) for place in places)
        self._runs = {place.run_id for place in places}
        self._queue = queue
        self._gaps: list[Gap] = []
        self._woken = threading.Event()

    def due(self, judged: Collection[tuple[str, int]]) -> frozenset[tuple[str, int]]:
        """Return run and step of its places that are not evaluated yet: not returned, or queued for the run itself.

        Args:
            judged: reviewed by this process; results of an earlier process may be reviewed before `ready` gets to them.
        """
        due = {(place.run_id, place.step) for place in self._left} - set(judged)
        for run_id in self._runs:
            due |= {(run_id, step) for step in self._queue.open_steps(run_id, sweeps=False)}
        return self._own & due

    def ready(self, now: datetime) -> tuple[Checkpoint, ...]:
        """Return the next checkpoint, or () while plans are waiting; see `ports.CheckpointSource`."""
        while self._left and self._has_room():
            place = self._left[0]
            try:
                checkpoint = _pinned(place)
            except CheckpointError as error:
                self._gaps.append(gap_of(error, (place.run_id, place.step, place.uri), now))
                del self._left[0]
                continue
            del self._left[0]  # after pinning: if a store fails, it is tried again
            return (checkpoint,)
        return ()

    def gaps(self) -> tuple[Gap, ...]:
        """Return what could not be pinned; see `ports.CheckpointSource`."""
        return tuple(self._gaps)

    def is_behind(self) -> bool:
        """Return whether some were not returned yet; see `ports.CheckpointSource`."""
        return bool(self._left)

    def give_up(self, now: datetime) -> None:
        """Do nothing: every checkpoint was returned or is a gap."""

    def wait(self, timeout_s: float) -> None:
        """Wait; see `ports.CheckpointSource`."""
        self._woken.wait(timeout_s)
        self._woken.clear()

    def wake(self) -> None:
        """Let `wait` return; see `ports.CheckpointSource`."""
        self._woken.set()

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _has_room(self) -> bool:
        """Return whether no plan waits for a worker; plans of sweeps and those returned with a note do not count."""
        own = (one for one in self._queue.state().waiting if one.run_id in self._runs)
        return all(one.is_sweep or one.note for one in own)


def _pinned(place: FilledPlace) -> Checkpoint:
    try:
        return place.pinned()
    except TrackerError:
        raise
    except Exception as error:
        log.exception("cannot pin %s; please report this bug", place.uri)
        raise bug_of(error_text(error)) from error


def quiet(world: World) -> World:
    """Return the world of a backfill: alerts of single checkpoints are dropped; see `notify_of_lasting`."""
    order = replace(world.order, reask_wait_s=0.0)  # the command itself is the confirmation
    return replace(world, order=order, dispatcher=replace(world.dispatcher, held=OF_CHECKPOINTS))


def fill_beside(
    world: World, state: WatchState, source: InTurn, *, clock: Clock, keep_workers: Callable[[], None], show: Show
) -> None:
    """Queue the checkpoints of `source`, one after the other, and return when the watcher of the run has judged all.

    `state.demand_lead` raises when there is no watcher any more. For the others see `daemon.watch`.
    """
    while source.due(()):
        now = clock.now()
        state.demand_lead(now)
        keep_workers()
        found = source.ready(now)
        # What the watcher has planned is not planned again: its screening may plan it differently.
        state.found += [one for one in found if one.step not in world.queue.open_steps(one.run_id, sweeps=False)]
        plan_found(world, state, now)
        ask_again(world, state, now)
        passed = Tick(checkpoints=found, gaps=remember_gaps(world, state), skipped=(), reports=(), unsent=0)
        show(passed, world.queue.state())
        source.wait(TICK_S)


def notify_of_lasting(world: World, run_ids: Iterable[str]) -> None:
    """Send alerts for what is wrong at the end of a backfill and was not reported before. Repeating it is harmless."""
    for run_id in run_ids:
        history = world.history
        looked = lasting_alerts(history.reports(run_id), history.incidents(run_id), history.open_alerts(run_id))
        for report, alerts in looked:
            world.dispatcher.dispatch(alerts, history.record(report.plan_id))


def is_measured(checkpoint: Checkpoint, records: Sequence[EvalRecord], measurement: MeasurementPlan) -> bool:
    """Return whether a checkpoint was measured with settings comparable to the current ones, in full or in part.

    `records` are those of its run, without samples.
    """
    serving = series_serving_hash(measurement.serve)
    known = {
        _content_of(record.plan.suite)
        for record in records
        if record.plan.checkpoint.digest == checkpoint.digest and series_serving_hash(record.plan.serve) == serving
    }
    return all(_content_of(suite) in known for suite in measurement.suites)


def _content_of(suite: Suite) -> tuple[str, frozenset[str]]:
    """Return a key that is equal for suites with comparable results."""
    return suite.name, frozenset(series_fingerprint(benchmark, suite) for benchmark in suite.benchmarks)
