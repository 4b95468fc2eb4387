"""A bug in the review of one record must not end the watching of a run that lasts days."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from eval_jobs.errors import TrackerError
from eval_jobs.host.unforeseen import report_unforeseen
from eval_jobs.types import EvalRecord

log = logging.getLogger(__name__)


class ErrorBoundary:
    """Excludes the records whose review failed; the next start tries them again."""

    def __init__(self) -> None:
        self._broken: set[str] = set()

    def unbroken(self, records: Iterable[EvalRecord]) -> Iterator[EvalRecord]:
        """Yield the records whose review has not failed before."""
        return (record for record in records if record.plan.id not in self._broken)

    @contextmanager
    def around(self, record: EvalRecord) -> Iterator[None]:
        """Suppress an unexpected error of the review of `record`: it is logged once, and the record stays in the queue.

        Raises:
            TrackerError: a known error, such as an unreachable store, which concerns every record.
        """
        try:
            yield
        except TrackerError:
            raise
        except Exception as error:  # noqa: BLE001 - an edge that must go on
            self._broken.add(record.plan.id)
            checkpoint = record.plan.checkpoint
            what = f"cannot compute the verdicts of step {checkpoint.step} of {checkpoint.run_id}"
            report_unforeseen(
                log, what, error, then="its results are kept, and its verdicts are computed at the next start"
            )
