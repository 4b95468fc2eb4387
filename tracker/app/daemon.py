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
    quiet_since: datetime | None = None
    while True:
        has_ended = stop.training_ended()  # asked before the look at the disk, which then sees what it left
        started_at = clock.now()
        passed = tick(world, started_at)
        state = world.queue.state()
        show(passed, state)
        keep_workers()
        if not has_ended or _is_new(passed) or state.waiting or state.running:
            quiet_since = None
        elif quiet_since is None:
            quiet_since = clock.now()
        elif started_at - quiet_since >= timedelta(seconds=stop.quiet_s):
            return
        world.source.wait(TICK_S)


# --- private


def _is_new(passed: Tick) -> bool:
    return bool(passed.checkpoints or passed.gaps or passed.reports)
