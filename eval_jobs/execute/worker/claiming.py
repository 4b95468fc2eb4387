"""Which plan a worker takes: the next one whose checkpoint it sees and that may begin now."""

import logging
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from pathlib import Path

from eval_jobs.execute.worker.execution_window import ExecutionWindow
from eval_jobs.ports import ClaimQueue
from eval_jobs.queue_types import Claim
from eval_jobs.types import EvalPlan

log = logging.getLogger(__name__)

LOOKED_AT = 20
"""Plans that one look at the queue goes through: those of earlier settings have conditions of their own."""
LOOK_AGAIN_S = 60.0
"""How long the plans of a run that cannot be seen are left to other workers; then the folder may be mounted."""


class PinVisibility:
    """Which runs' checkpoints this machine sees: their folder may not be mounted on the worker's machine."""

    def __init__(self) -> None:
        self._unseen: dict[str, datetime] = {}
        self._reported: set[str] = set()

    def sees(self, plan: EvalPlan, now: datetime) -> bool:
        """Say whether the checkpoint can be read here, and once for each run if not.

        A single checkpoint that is missing in a folder that is there is gone everywhere: then carrying the plan out
        fails, and says so.
        """
        run_id, path = plan.checkpoint.run_id, Path(plan.checkpoint.uri)
        if path.exists() or path.parent.is_dir():
            self._unseen.pop(run_id, None)
            self._reported.discard(run_id)
            return True
        self._unseen[run_id] = now
        if run_id not in self._reported:
            self._reported.add(run_id)
            log.warning(
                "run %s: checkpoints not found on this machine (%s); leaving its plans to other workers, "
                "checking again every %.0f s",
                run_id,
                path,
                LOOK_AGAIN_S,
            )
        return False

    def unseen(self, now: datetime) -> tuple[str, ...]:
        """Return the runs whose plans are not worth a claim now."""
        last = timedelta(seconds=LOOK_AGAIN_S)
        return tuple(run_id for run_id, looked_at in self._unseen.items() if abs(now - looked_at) < last)


class ClaimFilter:
    """Decides about plans by what this machine sees, and by what they ask to wait for."""

    def __init__(self, *, visibility: PinVisibility | None, window: ExecutionWindow | None) -> None:
        """Without `visibility` every checkpoint is seen; without `window` every plan may begin."""
        self._visibility = visibility
        self._window = window

    @property
    def shown(self) -> str:
        """Why plans wait, in a line; "" when nothing is known that would have to."""
        if self._window is not None:
            return self._window.shown
        return ""

    def choose(
        self, queue: ClaimQueue, claim_next: Callable[[Collection[str]], Claim | None], now: datetime
    ) -> Claim | None:
        """Claim a plan; those that cannot be seen from here or have to wait are given back as if never claimed."""
        unseen = self._visibility.unseen(now) if self._visibility is not None else ()
        paused = self._window.paused_runs() if self._window is not None else ()
        refused: list[tuple[Claim, str]] = []
        try:
            for _ in range(LOOKED_AT):
                claim = claim_next((*unseen, *paused))
                if claim is None or (why := self._refusal(claim.plan, now)) is None:
                    return claim
                refused.append((claim, why))
            return None
        finally:
            for claim, why in refused:
                queue.release(claim, counts=False, note=why)

    # --- private

    def _refusal(self, plan: EvalPlan, now: datetime) -> str | None:
        """Return why a plan is given back, "" where there is nothing to show; None: it is carried out."""
        if self._visibility is not None and not self._visibility.sees(plan, now):
            return ""
        if self._window is not None:
            return self._window.reason(plan) or None
        return None
