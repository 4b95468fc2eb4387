"""Chooses the plan that a worker claims: the next one whose checkpoint is visible and that may begin now."""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from eval_jobs.execute.worker.execution_window import ExecutionWindow
from eval_jobs.ports import ClaimQueue
from eval_jobs.queue_types import Claim
from eval_jobs.types import EvalPlan

log = logging.getLogger(__name__)

LOOKED_AT = 20
"""Maximum number of plans checked in one poll; plans of earlier settings have their own conditions."""
LOOK_AGAIN_S = 60.0
"""How long plans of a run that is not visible are left to other workers; then the folder may be mounted."""


class PinVisibility:
    """Tracks which runs' checkpoints are visible: their folder may not be mounted on the worker's machine."""

    def __init__(self) -> None:
        self._unseen: dict[str, datetime] = {}
        self._reported: set[str] = set()

    def sees(self, plan: EvalPlan, now: datetime) -> bool:
        """Return whether the checkpoint is visible here; if not, log it once for each run.

        A checkpoint that is missing from an existing folder is gone everywhere. It counts as visible, and the plan
        fails with that reason.
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
        """Return the runs whose plans should not be claimed now."""
        last = timedelta(seconds=LOOK_AGAIN_S)
        return tuple(run_id for run_id, looked_at in self._unseen.items() if abs(now - looked_at) < last)


@dataclass(frozen=True, kw_only=True)
class ClaimFilter:
    """Filters plans by the visibility of their checkpoints and by their execution window."""

    window: ExecutionWindow
    visibility: PinVisibility | None = None
    """None: every checkpoint counts as visible."""

    def choose(
        self, queue: ClaimQueue, claim_next: Callable[[Collection[str]], Claim | None], now: datetime
    ) -> Claim | None:
        """Claim a plan; plans that are not visible or have to wait are released, and their claim does not count."""
        unseen = self.visibility.unseen(now) if self.visibility is not None else ()
        paused = self.window.paused_runs()
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

    def _refusal(self, plan: EvalPlan, now: datetime) -> str | None:
        """Return why a plan is released, "" if there is nothing to show; None: it is carried out."""
        if self.visibility is not None and not self.visibility.sees(plan, now):
            return ""
        return self.window.reason(plan) or None
