"""The edge of the watcher: a bug in the path of one record must not end the watching of a run of days."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from eval_jobs.errors import TrackerError
from eval_jobs.types import EvalRecord

log = logging.getLogger(__name__)

Reviewed = TypeVar("Reviewed")


class Edge:
    """Calls what reviews records, and leaves alone those at which it broke; the next start tries them again."""

    def __init__(self) -> None:
        self._broken: set[str] = set()

    def reviewed(self, record: EvalRecord, review: Callable[[], Reviewed]) -> Reviewed | None:
        """Return what `review` returns, None when it broke now or before: said once, and the record stays where it is.

        Raises:
            TrackerError: whatever has a name: a store that is away concerns every record.
        """
        if record.plan.id in self._broken:
            return None
        try:
            return review()
        except TrackerError:
            raise
        except Exception as error:
            self._broken.add(record.plan.id)
            log.error(  # noqa: TRY400 - a traceback is for --debug
                "step %d of %s could not be judged: %s. Its results are kept, and the next start tries again; "
                "everything else goes on. Please report this",
                record.plan.checkpoint.step,
                record.plan.checkpoint.run_id,
                f"{type(error).__name__}: {error}",
                exc_info=log.isEnabledFor(logging.DEBUG),
            )
            return None
