"""The scores of one run in memory, brought up to date by reading what is new only.

kept = KeptScores(run_id, samples_dir)
scores = kept.brought_up_to(records)      # of all records; only new and replaced ones are read
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from eval_jobs.types import EvalRecord, EvalResult
from tracker.adapters.samples_parquet import read_columns, samples_path
from tracker.domain.run_scores import RunScores, scores_of, with_record, without_step
from tracker.domain.sample_columns import Questions, SampleColumns


class KeptScores:
    """The scores of one run, whose samples lie in Parquet files under `samples_dir`."""

    def __init__(self, run_id: str, samples_dir: Path) -> None:
        """Begin with nothing read."""
        self._samples_dir = samples_dir
        self._scores = RunScores(run_id=run_id)
        self._taken: dict[str, EvalRecord] = {}
        """Records that are in the scores, by plan id."""
        self._shared: dict[str, Questions] = {}
        """What was asked, for `read_columns`."""

    def brought_up_to(self, records: Sequence[EvalRecord]) -> RunScores:
        """Return the scores of all `records` of the run; one that is the same object as before is not read again.

        Raises:
            StoreError: samples are missing or damaged; nothing has changed then.
        """
        changed = [r for r in records if self._taken.get(r.plan.id) is not r]
        if changed:
            # A replaced record may give way to another one of its step: such a step is read anew.
            anew = {self._taken[r.plan.id].plan.checkpoint.step for r in changed if r.plan.id in self._taken}
            more = [r for r in records if r.plan.checkpoint.step in anew or self._taken.get(r.plan.id) is not r]
            self._scores = self._with(_without(self._scores, anew), more)
            self._taken.update({r.plan.id: r for r in changed})
        return self._scores

    # --- private

    def _with(self, scores: RunScores, records: Sequence[EvalRecord]) -> RunScores:
        if not scores.series:
            return scores_of(scores.run_id, ((record, self._columns(record)) for record in records))
        for record in records:
            scores = with_record(scores, record, self._columns(record))
        return scores

    def _columns(self, record: EvalRecord) -> Mapping[str, SampleColumns]:
        return {
            o.benchmark: read_columns(samples_path(self._samples_dir, record.plan.id, o.benchmark), self._shared)
            for o in record.outcomes
            if isinstance(o, EvalResult)
        }


def _without(scores: RunScores, steps: set[int]) -> RunScores:
    for step in steps:
        scores = without_step(scores, step)
    return scores
