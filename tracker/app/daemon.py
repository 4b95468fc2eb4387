"""`tracker watch`: the pipeline's tick, again and again, until it is told to stop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from eval_jobs.errors import StoreError
from eval_jobs.ports import Clock
from eval_jobs.types import QueueState
from tracker.app.pipeline import Tick, World, tick

log = logging.getLogger(__name__)

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

    `keep_workers` is called once a pass: it restarts workers that died and raises when they cannot live. A store
    that refuses (a full disk) is said once and asked again: pinning must go on, or rotation takes the checkpoints.
    """
    revived = world.queue.revive()
    if revived:
        log.warning("%d checkpoints whose evaluation had failed are tried again", revived)
    quiet_since: datetime | None = None
    trouble = ""
    while True:
        has_ended = stop.training_ended()  # asked before the look at the disk, which then sees what it left
        started_at = clock.now()
        try:
            is_quiet = _pass(world, started_at, show) and has_ended
            trouble = ""
        except StoreError as error:
            if error.message != trouble:
                log.warning("%s; trying again", error)
            trouble, is_quiet = error.message, False
        keep_workers()
        if not is_quiet:
            quiet_since = None
        elif quiet_since is None:
            quiet_since = clock.now()
        elif started_at - quiet_since >= timedelta(seconds=stop.quiet_s):
            break
        world.source.wait(TICK_S)
    world.source.give_up(clock.now())
    _pass(world, clock.now(), show)


# --- private


def _pass(world: World, now: datetime, show: Show) -> bool:
    """Do one pass and return whether nothing happened and nothing is under way."""
    passed = tick(world, now)
    state = world.queue.state()
    show(passed, state)
    is_busy = passed.checkpoints or passed.gaps or passed.reports or state.waiting or state.running
    return not (is_busy or world.source.is_behind())
