"""Checkpoints that are not evaluated: the source could not pin them, or too many newer ones were waiting."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from eval_jobs.errors import CheckpointError, CheckpointSkipped
from eval_jobs.queue_types import Backlog
from eval_jobs.types import Checkpoint
from tracker.app.world import QueueOrder, WatchState, World
from tracker.domain.alerts.rules import alert_of_gap
from tracker.domain.checkpoints.gaps import unsettled
from tracker.domain.records.display import count_text
from tracker.domain.records.types import Gap


def remember_gaps(world: World, state: WatchState) -> tuple[Gap, ...]:
    """Store the gaps that the source found, send alerts for them, and return the new ones."""
    found = [gap for gap in world.source.gaps() if gap not in state.reported.gaps]
    new: list[Gap] = []
    for run_id in sorted({gap.run_id for gap in found}):
        new += _remember_of_run(world, run_id, [gap for gap in found if gap.run_id == run_id])
    state.reported.gaps.update(found)
    # Inferred ones may have been settled by an earlier process.
    existing = [gap for gap in found if not gap.is_inferred]
    state.seen.update((gap.run_id, gap.step) for gap in (*existing, *new))
    return tuple(new)


def skip_surplus(world: World, state: WatchState, now: datetime) -> tuple[Gap, ...]:
    """Skip the oldest waiting checkpoints beyond the limit, store each as a gap, and return the new gaps.

    No alert is sent: skipping is normal while the trainer is faster than the workers.
    """
    if world.order.backlog is Backlog.NEWEST:
        for run_id in state.first:
            world.queue.skip(run_id, max_waiting=world.order.max_waiting)
    gaps = []
    for plan in world.queue.skipped():
        gap = gap_of_skipped(plan.checkpoint, world.order, now)
        if world.history.append_gap(gap):
            gaps.append(gap)
        world.queue.leave_out(plan.id)  # after the history: a crash in between repeats it, harmlessly
    return tuple(gaps)


def gap_of_skipped(checkpoint: Checkpoint, order: QueueOrder, now: datetime) -> Gap:
    """Return the gap of a checkpoint that was skipped. Pure."""
    error = CheckpointSkipped(
        f"skipped in favor of {count_text(order.max_waiting, 'newer checkpoint')}",
        hint=f'evaluate it with `tracker evaluate {checkpoint.uri}`, add workers, or set watch.backlog = "all"',
    )
    return gap_of(error, (checkpoint.run_id, checkpoint.step, checkpoint.source_uri), now)


def gap_of(error: CheckpointError, place: tuple[str, int, str], now: datetime) -> Gap:
    """Return the gap of a checkpoint; `place`: its run, its step and where the trainer wrote it. Pure."""
    run_id, step, uri = place
    return Gap(
        run_id=run_id,
        step=step,
        source_uri=uri,
        code=error.code,
        message=error.message,
        hint=error.hint,
        seen_at=now,
    )


def _remember_of_run(world: World, run_id: str, found: Iterable[Gap]) -> Iterator[Gap]:
    firing = {alert.fingerprint for alert in world.history.open_alerts(run_id)}
    for gap in unsettled(found, world.history.gaps(run_id), world.history.records(run_id)):
        if world.history.append_gap(gap):
            yield gap
        alert = alert_of_gap(gap)
        if alert.fingerprint not in firing:  # known gaps too: a crash may have prevented the alert
            world.dispatcher.dispatch([alert])
