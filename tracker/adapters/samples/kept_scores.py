"""The scores of one run in memory, updated by reading only new records."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from eval_jobs.types import EvalRecord
from tracker.domain.records.losses import Measure
from tracker.domain.scores.run_scores import RunScores, scores_of, with_record, without_step
from tracker.domain.scores.sample_columns import SampleColumns


@dataclass(frozen=True, kw_only=True)
class StoredRecord:
    """A record without its samples, and the version of their files."""

    record: EvalRecord
    samples: str
    """Version of the files with the samples."""


Columns = Mapping[str, SampleColumns]
"""The samples of every result of a record, by benchmark."""


class KeptScores:
    """The scores of one run."""

    def __init__(
        self, run_id: str, read: Callable[[StoredRecord], Columns], measures: tuple[Measure, ...] = tuple(Measure)
    ) -> None:
        """Start with no records; `read` raises StoreError for samples that are missing or damaged."""
        self._read = read
        self._scores = RunScores(run_id=run_id, measures=measures)
        self._taken: dict[str, EvalRecord] = {}
        """Records that are in the scores, by plan id."""

    def brought_up_to(self, stored: Sequence[StoredRecord]) -> RunScores:
        """Return the scores of all records of the run; one that is the same object as before is not read again.

        Raises:
            StoreError: samples are missing or damaged; the scores in memory stay unchanged.
        """
        changed = [s for s in stored if self._is_new(s)]
        if changed:
            # Another record of the same step may take precedence over a replaced one, so the step is read again.
            replaced = (self._taken[s.record.plan.id] for s in changed if s.record.plan.id in self._taken)
            anew = {record.plan.checkpoint.step for record in replaced}
            more = [s for s in stored if s.record.plan.checkpoint.step in anew or self._is_new(s)]
            self._scores = self._with(_without(self._scores, anew), more)
            self._taken.update({s.record.plan.id: s.record for s in changed})
        return self._scores

    def _is_new(self, stored: StoredRecord) -> bool:
        return self._taken.get(stored.record.plan.id) is not stored.record

    def _with(self, scores: RunScores, stored: Sequence[StoredRecord]) -> RunScores:
        if not scores.series:
            return scores_of(scores.run_id, self._each(stored), scores.measures)
        for record, columns in self._each(stored):
            scores = with_record(scores, record, columns)
        return scores

    def _each(self, stored: Sequence[StoredRecord]) -> Iterator[tuple[EvalRecord, Columns]]:
        return ((one.record, self._read(one)) for one in stored)


def _without(scores: RunScores, steps: set[int]) -> RunScores:
    for step in steps:
        scores = without_step(scores, step)
    return scores
