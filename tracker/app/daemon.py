"""`tracker watch`: the pipeline's tick, again and again, until it is told to stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from eval_jobs.ports import Clock
from eval_jobs.types import QueueState
from tracker.app.pipeline import Tick, World, tick

TICK_S = 1.0

Show = Callable[[Tick, QueueState], None]
"""Called after every pass."""


@dataclass(frozen=True, kw_only=True)
class StopRule:
    """When watching ends by itself."""

    training_ended: Callable[[], bool]
    """Whether no further checkpoint is to be expected."""
    quiet_s: float
    """How long nothing may have happened after that, so that the last checkpoint has settled."""


def watch(world: World, *, clock: Clock, keep_workers: Callable[[], None], stop: StopRule, show: Show) -> None:
    """Watch until the training has ended and everything that it left is judged and published.

    `keep_workers` is called once a pass: it restarts workers that died and raises when they cannot live.
    """
    last_event = clock.now()
    while True:
        now = clock.now()
        passed = tick(world, now)
        state = world.queue.state()
        show(passed, state)
        keep_workers()
        if passed.checkpoints or passed.gaps or passed.reports or not stop.training_ended() or _busy(state):
            last_event = now
        if _is_over(last_event, now, stop):
            return
        world.source.wait(TICK_S)


# --- private


def _busy(state: QueueState) -> bool:
    return bool(state.waiting or state.running)


def _is_over(last_event: datetime, now: datetime, stop: StopRule) -> bool:
    return now - last_event >= timedelta(seconds=stop.quiet_s)
