"""Which plan a worker takes: the next one whose checkpoint it sees and that may begin now."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime

from eval_jobs.execute.worker.pause import Pauses
from eval_jobs.execute.worker.sight import Sight
from eval_jobs.ports import ClaimQueue
from eval_jobs.queue_types import Claim
from eval_jobs.types import EvalPlan

LOOKED_AT = 20
"""Plans that one look at the queue goes through: those of earlier settings have conditions of their own."""


class Chooser:
    """Decides about plans by what this machine sees, and by what they ask to wait for."""

    def __init__(self, *, sight: Sight | None, pauses: Pauses | None) -> None:
        """Without `sight` every checkpoint is seen; without `pauses` every plan may begin."""
        self._sight = sight
        self._pauses = pauses

    @property
    def shown(self) -> str:
        """Why plans wait, in a line; "" when nothing is known that would have to."""
        return self._pauses.shown if self._pauses is not None else ""

    def choose(
        self, queue: ClaimQueue, claim_next: Callable[[Collection[str]], Claim | None], now: datetime
    ) -> Claim | None:
        """Claim a plan; those that cannot be seen from here or have to wait are given back as if never claimed."""
        unseen = self._sight.unseen(now) if self._sight is not None else ()
        paused = self._pauses.paused_runs() if self._pauses is not None else ()
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
        if self._sight is not None and not self._sight.sees(plan, now):
            return ""
        return (self._pauses.reason(plan) or None) if self._pauses is not None else None
