"""The best checkpoint of a run, from its history."""

from tracker.domain.best.choice import Best, best_of
from tracker.domain.records.branches import branches_of
from tracker.domain.records.losses import Measure
from tracker.domain.scores.run_scores import RunScores
from tracker.domain.verdicts.rewind import scores_of_newest
from tracker.ports import JudgedRecordStore, RecordStore


def best_of_run(run_id: str, history: JudgedRecordStore, benchmark: str | None = None) -> Best | None:
    """Return the best checkpoint without an open loss that is not broken and was not discarded by a rewind.

    None: none has a score on everything that counts.

    `benchmark` None: by the mean over its suite.

    Raises:
        StoreError: samples of the run are missing or damaged.
    """
    return best_of(newest_scores(run_id, history), benchmark, incidents=history.incidents(run_id))


def newest_scores(run_id: str, history: RecordStore) -> RunScores:
    """Return the scores of a run without the checkpoints that were discarded when training was rewound.

    Raises:
        StoreError: samples of the run are missing or damaged.
    """
    branches = branches_of(record.plan.checkpoint for record in history.records(run_id))
    return scores_of_newest(history.scores(run_id, (Measure.SCORE,)), branches)
