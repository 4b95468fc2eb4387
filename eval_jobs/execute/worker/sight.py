"""Which runs' checkpoints this machine sees: a worker may stand where nobody mounted their folder."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from pathlib import Path

from eval_jobs.types import EvalPlan

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 60.0
"""How long the plans of a run that cannot be seen are left to other workers; then the folder may be mounted."""


class Sight:
    """Remembers which runs were not to be seen."""

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
                "run %s: its checkpoints are not visible on this machine (%s); its plans are left to other workers, "
                "and looked for here again every %.0f s",
                run_id,
                path,
                LOOK_AGAIN_S,
            )
        return False

    def unseen(self, now: datetime) -> tuple[str, ...]:
        """Return the runs whose plans are not worth a claim now."""
        last = timedelta(seconds=LOOK_AGAIN_S)
        return tuple(run_id for run_id, looked_at in self._unseen.items() if abs(now - looked_at) < last)
